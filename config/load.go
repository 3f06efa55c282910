package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Load returns the effective configuration once the flags are parsed, and what
// to tell the user about it. The error names everything that is wrong.
func (f *Flags) Load() (Config, []Warning, error) {
	r := &reader{name: f.nameOf}
	r.changedFlags(f)
	c := f.own
	fields := f.fields
	if c.ConfigFile == "" {
		f.fromFlags(r, &fields)
	} else {
		file, warnings, err := readFile(c.ConfigFile)
		r.warnings = append(r.warnings, warnings...)
		if err != nil {
			return Config{}, r.warnings, errors.Join(err, r.err())
		}
		r.name = func(path string) string { return path }
		r.ignored(file)
		setDefaults(file)
		f.overFile(file)
		fields = *file
	}
	r.read(&fields, &c)
	r.own(&c)
	r.nodeName(f, &fields, &c)
	return c, r.warnings, r.err()
}

// nameOf returns what stands for a field on the command line.
func (f *Flags) nameOf(path string) string {
	field, index, isElement := strings.Cut(path, "[")
	flag, ok := f.flagOf[field]
	if !ok {
		return path
	}
	if isElement {
		return "--" + flag + "[" + index
	}
	return "--" + flag
}

// changedFlags warns of flags without effect and rejects those that are
// refused.
func (r *reader) changedFlags(f *Flags) {
	f.set.Visit(func(flag *pflag.Flag) {
		name := "--" + flag.Name
		if why, ok := f.without[flag.Name]; ok {
			r.warnings = append(r.warnings, Warning{name, why})
		}
		if why, ok := f.refused[flag.Name]; ok {
			r.errs = append(r.errs, violation{name, flag.Value.String(), why})
		}
		_, isField := f.fieldOf[flag.Name]
		isField = isField || flag.Name == "healthz-port" || flag.Name == "metrics-port"
		if f.own.ConfigFile != "" && isField && !f.always[flag.Name] {
			r.warnings = append(r.warnings, Warning{name, "ignored because of --config"})
		}
	})
}

// fromFlags finishes the fields that several flags decide.
func (f *Flags) fromFlags(r *reader, c *v1alpha1.KubeProxyConfiguration) {
	c.Logging.Verbosity = logsapi.VerbosityLevel(f.verbosity)
	f.serverFromFlags(r, &c.HealthzBindAddress, "healthz", f.healthzPort, defaultListen(c.BindAddress, false, f.healthzPort))
	f.serverFromFlags(r, &c.MetricsBindAddress, "metrics", f.metricsPort, defaultListen(c.BindAddress, true, f.metricsPort))
	c.FeatureGates = map[string]bool{}
	for gate, text := range f.gates {
		on, err := strconv.ParseBool(text)
		if err != nil {
			r.reject("featureGates", gate+"="+text, "must be true or false")
		}
		c.FeatureGates[gate] = on
	}
}

// serverFromFlags applies the deprecated flag of a server's port. An address
// that is given wins, except over port 0.
func (f *Flags) serverFromFlags(r *reader, address *string, server string, port int, usual string) {
	portFlag := server + "-port"
	if f.set.Changed(portFlag) {
		r.warnings = append(r.warnings, Warning{"--" + portFlag, "deprecated: use --" + server + "-bind-address"})
	}
	switch {
	case port == 0:
		*address = ""
	case !f.set.Changed(server + "-bind-address"):
		*address = usual
	}
}

// overFile applies the flags that count beside a file.
func (f *Flags) overFile(c *v1alpha1.KubeProxyConfiguration) {
	if f.set.Changed("v") {
		c.Logging.Verbosity = logsapi.VerbosityLevel(f.verbosity)
	}
	if f.set.Changed("logging-format") {
		c.Logging.Format = f.fields.Logging.Format
	}
}

// own checks the flags that have no field.
func (r *reader) own(c *Config) {
	r.notNegative("--drain-timeout", c.DrainTimeout)
	r.notNegative("--drain-timeout-gone", c.DrainTimeoutGone)
	switch c.IPTablesFlavor {
	case FlavorAuto, FlavorNFT, FlavorLegacy:
	default:
		r.reject("--iptables-flavour", string(c.IPTablesFlavor), "must be auto, nft or legacy")
	}
}

// nodeName takes the flag, the file's field or the host's name, in this order.
func (r *reader) nodeName(f *Flags, fields *v1alpha1.KubeProxyConfiguration, c *Config) {
	name := strings.TrimSpace(c.HostnameOverride)
	if name == "" && c.HostnameOverride != "" {
		r.errs = append(r.errs, violation{"--hostname-override", c.HostnameOverride, "must not be blank"})
		return
	}
	if name == "" {
		name = strings.TrimSpace(fields.HostnameOverride)
	}
	c.HostnameOverride = strings.ToLower(name)
	if name == "" {
		host, err := f.hostname()
		name = strings.TrimSpace(host)
		if err != nil || name == "" {
			r.errs = append(r.errs, fmt.Errorf("the host has no name (%v): give --hostname-override", err))
		}
	}
	c.NodeName = strings.ToLower(name)
}
