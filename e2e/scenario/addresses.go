package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"go.yaml.in/yaml/v3"
)

// bound is an address on a device.
type bound struct {
	device string
	addr   netip.Addr
}

// parseAddresses reads `ip -o addr`.
func parseAddresses(output string) []bound {
	var all []bound
	for line := range strings.Lines(output) {
		words := strings.Fields(line)
		if len(words) < 4 || !strings.HasPrefix(words[2], "inet") {
			continue
		}
		text, _, _ := strings.Cut(words[3], "/")
		if addr, err := netip.ParseAddr(text); err == nil {
			all = append(all, bound{device: words[1], addr: addr})
		}
	}
	return all
}

// listDummies prints the addresses of a node's dummy devices and the devices themselves.
const listDummies = "ip -o addr show type dummy; ip -o link show type dummy"

// dummies are the dummy devices of a node and what is bound on them.
type dummies struct {
	indexes []int
	addrs   []netip.Addr
}

// dummies reads the dummy devices of a node.
func (s *session) dummies(ctx context.Context, node string) (dummies, error) {
	output, err := s.output(ctx, node, listDummies)
	if err != nil {
		return dummies{}, err
	}
	return parseDummies(output), nil
}

// parseDummies reads the output of listDummies, each line of which begins with the index of a device.
func parseDummies(output string) dummies {
	var d dummies
	for line := range strings.Lines(output) {
		number, _, _ := strings.Cut(line, ":")
		if index, err := strconv.Atoi(number); err == nil && !slices.Contains(d.indexes, index) {
			d.indexes = append(d.indexes, index)
		}
	}
	for _, b := range parseAddresses(output) {
		d.addrs = append(d.addrs, b.addr)
	}
	return d
}

// texts are the addresses in a fixed order.
func (d dummies) texts() []string {
	var texts []string
	for _, addr := range d.addrs {
		texts = append(texts, addr.String())
	}
	slices.Sort(texts)
	return texts
}

// addresses checks what is bound on a node's dummy device.
type addresses struct {
	on    string
	parts hasLacks
}

func (p *parser) addresses(t *table) check {
	a := addresses{on: p.node(t), parts: p.hasLacks(t)}
	if a.parts.empty() {
		p.fault(t.node, `addresses checks nothing; add has or lacks, such as has: ["${vip1}"]`)
	}
	for _, key := range []string{"has", "lacks"} {
		p.checkAddresses(t.get(key), key)
	}
	return a
}

func (p *parser) checkAddresses(n *yaml.Node, key string) {
	if n == nil {
		return
	}
	for _, item := range n.Content {
		if !isAddress(target(item).Value) {
			p.fault(item, "%s has %s, which is no address; write it without a length, such as 203.0.113.1 or ${vip1}", key, sample(target(item)))
		}
	}
}

// node reads `on` of a step that looks at a node's kernel.
func (p *parser) node(t *table) string {
	return p.host(t.need("on", "node1"), "on", "node", HostSpec.IsNode)
}

func (a addresses) try(ctx context.Context, s *session) error {
	have, err := s.dummies(ctx, a.on)
	if err != nil {
		return err
	}
	if have.indexes == nil {
		return failf("addresses on %s: want a dummy device, saw none", a.on)
	}
	err = a.parts.compare(func(part string) bool {
		want, err := netip.ParseAddr(part)
		return err == nil && slices.Contains(have.addrs, want.Unmap())
	}, short(listed(have.texts())))
	if err != nil {
		return fmt.Errorf("addresses on %s: %w", a.on, err)
	}
	return nil
}

// isNode says whether the backend saw an address of any node. An address on a dummy device does not count: it is a
// Service's.
func (s *session) isNode(ctx context.Context, a traffic.Attempt) (bool, error) {
	seen := a.Answer.Client.Addr()
	for _, h := range Hosts() {
		if !h.IsNode() {
			continue
		}
		if seen == h.IPv4 || seen == h.IPv6 {
			return true, nil
		}
	}
	for _, h := range Hosts() {
		if !h.IsNode() {
			continue
		}
		if own, err := s.ownAddress(ctx, h.Name, seen); own || err != nil {
			return own, err
		}
	}
	return false, nil
}

// ownAddress says whether an address is on a device of a node, and on none of its dummy devices.
func (s *session) ownAddress(ctx context.Context, node string, a netip.Addr) (bool, error) {
	output, err := s.output(ctx, node, "ip -o addr show")
	if err != nil {
		return false, err
	}
	on := func(b bound) bool { return b.addr == a }
	if !slices.ContainsFunc(parseAddresses(output), on) {
		return false, nil
	}
	services, err := s.dummies(ctx, node)
	return !slices.Contains(services.addrs, a), err
}
