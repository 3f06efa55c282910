package ipset

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// code is an error that the kernel's ipset reports beyond the range of errno
// (include/uapi/linux/netfilter/ipset/ip_set.h, ip_set_hash.h).
type code int32

const (
	codeProtocol code = nl.IPSET_ERR_PROTOCOL
	codeType     code = nl.IPSET_ERR_FIND_TYPE
	codeMaxSets  code = nl.IPSET_ERR_MAX_SETS
	codeBusy     code = nl.IPSET_ERR_BUSY
	codeSecond   code = nl.IPSET_ERR_EXIST_SETNAME2
	codeMismatch code = nl.IPSET_ERR_TYPE_MISMATCH
	codeCIDR     code = nl.IPSET_ERR_INVALID_CIDR
	codeFamily   code = nl.IPSET_ERR_INVALID_FAMILY
	codeSkbinfo  code = nl.IPSET_ERR_SKBINFO
	codeFull     code = nl.IPSET_ERR_TYPE_SPECIFIC
	codeElement  code = nl.IPSET_ERR_TYPE_SPECIFIC + 1
)

// Error says what the code means.
func (c code) Error() string {
	switch c {
	case codeProtocol:
		return "the kernel does not understand the request"
	case codeType:
		return "the kernel lacks the set type, or a new enough revision of it"
	case codeMaxSets:
		return "the kernel's limit of sets is reached (parameter max_sets of module ip_set)"
	case codeBusy:
		return "the set is in use: an iptables rule or another set names it, and must go first"
	case codeSecond:
		return "the set to swap with does not exist"
	case codeMismatch:
		return "the sets differ in type"
	case codeCIDR:
		return "the prefix length is invalid"
	case codeFamily:
		return "the address family is invalid"
	case codeSkbinfo:
		return "the set holds no packet marks (skbinfo)"
	case codeFull:
		return "the set is full"
	case codeElement:
		return "the set type cannot hold this entry"
	}
	return fmt.Sprintf("ipset error %d", int32(c))
}

// errorOf turns the kernel's negative number into an error, nil for 0.
func errorOf(n int32) error {
	switch {
	case n == 0:
		return nil
	case -n >= nl.IPSET_ERR_PRIVATE:
		return code(-n)
	}
	return unix.Errno(-n)
}

// refusal is the failure of one entry of a batch. The entries before it have
// been dealt with, those after it have not.
type refusal struct {
	index int
	err   error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// explain adds what an operator can do about an error that points to the
// kernel's equipment or to rights. The modules are those that the request
// needed.
func explain(err error, modules ...string) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: the process needs the capability NET_ADMIN", err)
	case errors.Is(err, unix.EINVAL):
		// nfnetlink's answer to a request for a subsystem that is not there.
		modules = []string{"ip_set"}
	case !errors.Is(err, unix.EPROTONOSUPPORT) && !errors.Is(err, codeType):
		return err
	}
	return fmt.Errorf("%w: run \"modprobe -a %s\" on the node; the modules come with the kernel package "+
		"(linux-image on Debian, linux-modules-extra on Ubuntu, kernel-modules-extra on RHEL)",
		err, strings.Join(modules, " "))
}
