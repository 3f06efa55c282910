package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// capNetAdmin is CAP_NET_ADMIN's bit (include/uapi/linux/capability.h).
const capNetAdmin = 12

// errPrivilege says what the process lacks. iptables-legacy also opens a raw
// socket.
var errPrivilege = errors.New("the capability NET_ADMIN is missing: run as root, or give the container the capabilities NET_ADMIN and NET_RAW")

// privileged fails unless the process may change the network of its namespace.
func privileged() error {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "CapEff:")
		if !ok {
			continue
		}
		effective, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		if err != nil {
			return fmt.Errorf("read own capabilities: %w", err)
		}
		if effective&(1<<capNetAdmin) == 0 {
			return errPrivilege
		}
		return nil
	}
	return errors.Join(errors.New("read own capabilities: no line CapEff"), lines.Err())
}
