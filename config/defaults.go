package config

import (
	"net/netip"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

const (
	healthzPort = 10256
	metricsPort = 10249

	defaultMasqueradeBit = 14
	defaultOOMScoreAdj   = -999
	defaultMaxPerCore    = 32 << 10
	defaultConntrackMin  = 128 << 10
)

// setDefaults fills in what a configuration leaves out, with kube-proxy's
// values: a missing number or duration and a zero mean the same, except where
// the API type has a pointer.
func setDefaults(c *v1alpha1.KubeProxyConfiguration) {
	setIfZero(&c.BindAddress, "0.0.0.0")
	setIfZero(&c.HealthzBindAddress, defaultListen(c.BindAddress, false, healthzPort))
	setIfZero(&c.MetricsBindAddress, defaultListen(c.BindAddress, true, metricsPort))
	setIfZero(&c.DetectLocalMode, v1alpha1.LocalMode(LocalClusterCIDR))
	setIfZero(&c.ConfigSyncPeriod.Duration, 15*time.Minute)
	setIfZero(&c.OOMScoreAdj, new(int32(defaultOOMScoreAdj)))
	setIfZero(&c.Logging.Format, string(LogText))

	setIfZero(&c.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	setIfZero(&c.ClientConnection.QPS, 5)
	setIfZero(&c.ClientConnection.Burst, 10)

	setIfZero(&c.IPVS.SyncPeriod.Duration, 30*time.Second)
	setIfZero(&c.IPTables.MasqueradeBit, new(int32(defaultMasqueradeBit)))
	setIfZero(&c.Conntrack.MaxPerCore, new(int32(defaultMaxPerCore)))
	setIfZero(&c.Conntrack.Min, new(int32(defaultConntrackMin)))
	setIfZero(&c.Conntrack.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	setIfZero(&c.Conntrack.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
}

func setIfZero[T comparable](p *T, value T) {
	if zero := *new(T); *p == zero {
		*p = value
	}
}

// defaultListen returns the address that a server listens on by default, of
// the family that bindAddress has.
func defaultListen(bindAddress string, loopback bool, port int) string {
	host := "0.0.0.0"
	addr, err := netip.ParseAddr(bindAddress)
	switch {
	case err == nil && addr.Is6() && loopback:
		host = "[::1]"
	case err == nil && addr.Is6():
		host = "[::]"
	case loopback:
		host = "127.0.0.1"
	}
	return host + ":" + strconv.Itoa(port)
}
