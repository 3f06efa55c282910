package vip

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// explain adds what an operator can do about an error with the device.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the process needs the capability NET_ADMIN", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%w: the kernel has no dummy devices: run \"modprobe dummy\" on the node; the module comes "+
			"with the kernel package (linux-image on Debian, linux-modules on Ubuntu, kernel-modules on RHEL)", err)
	}
	return err
}

// explainAddress adds what an operator can do about an error with an address.
func explainAddress(err error, o op) error {
	switch six := o.binding.Addr().Is6(); {
	case six && errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: IPv6 is disabled on the device (sysctl net.ipv6.conf.%s.disable_ipv6)", err, o.device)
	case six && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)):
		return fmt.Errorf("%w: the kernel has no IPv6, or it is disabled (ipv6.disable=1)", err)
	}
	return explain(err)
}
