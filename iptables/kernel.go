package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const (
	// LockWait is how long a program waits for the xtables lock.
	LockWait = 5 * time.Second
	// runLimit is how long a program may run in all.
	runLimit = 30 * time.Second
)

// kernel is what Table asks of iptables. Tables, chains and rules are in the
// notation of iptables-save.
type kernel interface {
	// families returns the families whose programs work.
	families() []state.Family
	// save returns what iptables-save prints of all tables.
	save(context.Context, state.Family) (string, error)
	// restore runs iptables-restore --noflush. Each table is written whole or
	// not at all.
	restore(ctx context.Context, f state.Family, text string) error
	// delete takes out the first such rule; that there is none is no error.
	delete(ctx context.Context, f state.Family, table, chain string, rule []string) error
	// randomFully reports whether MASQUERADE knows --random-fully.
	randomFully() bool
}

// programs is the kernel seen through the programs of one flavour.
type programs struct {
	flavour Flavour
	// single runs one command at a time; each is opened when it is needed,
	// since that starts a program.
	single map[state.Family]*goiptables.IPTables
}

func openPrograms(f Flavour) *programs {
	return &programs{flavour: f, single: map[state.Family]*goiptables.IPTables{}}
}

// open returns what runs single commands in a family.
func (p *programs) open(f state.Family) (*goiptables.IPTables, error) {
	if ipt := p.single[f]; ipt != nil {
		return ipt, nil
	}
	protocol := goiptables.ProtocolIPv4
	if f == state.IPv6 {
		protocol = goiptables.ProtocolIPv6
	}
	ipt, err := goiptables.New(goiptables.IPFamily(protocol), goiptables.Path(p.flavour.program(f)),
		goiptables.Timeout(int(LockWait.Seconds())))
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.flavour.program(f), err)
	}
	p.single[f] = ipt
	return ipt, nil
}

func (p *programs) families() []state.Family { return p.flavour.Families }

func (p *programs) save(ctx context.Context, f state.Family) (string, error) {
	if text, ok := p.flavour.saved[f]; ok {
		delete(p.flavour.saved, f)
		return text, nil
	}
	return run(ctx, "", p.flavour.program(f)+"-save")
}

func (p *programs) restore(ctx context.Context, f state.Family, text string) error {
	_, err := run(ctx, text, p.flavour.program(f)+"-restore", "--noflush", "-w", strconv.Itoa(int(LockWait.Seconds())))
	return err
}

// delete cannot be cancelled once it runs; it waits for the lock no longer
// than LockWait.
func (p *programs) delete(ctx context.Context, f state.Family, table, chain string, rule []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ipt, err := p.open(f)
	if err != nil {
		return err
	}
	err = ipt.Delete(table, chain, rule...)
	var failure *goiptables.Error
	if errors.As(err, &failure) && failure.IsNotExist() {
		return nil
	}
	return locked(err)
}

// randomFully asks one program, since those of both families are one.
func (p *programs) randomFully() bool {
	ipt, err := p.open(p.flavour.Families[0])
	return err == nil && ipt.HasRandomFully()
}

// run runs a program to its end and returns what it printed. Its error holds
// what it said, and is ErrLocked where it gave up waiting for the lock.
func run(ctx context.Context, input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	command := strings.Join(append([]string{name}, args...), " ")
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s: %w", command, ctx.Err())
	}
	return "", locked(fmt.Errorf("%s: %w: %s", command, err, said(stderr.String(), input)))
}

// said condenses a program's complaint to one line and, where it names a line
// of its input, shows that line.
func said(complaint, input string) string {
	var parts []string
	for line := range strings.Lines(complaint) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "Try `") {
			continue
		}
		if _, number, ok := strings.Cut(line, "Error occurred at line: "); ok {
			line = quoteLine(line, number, input)
		}
		parts = append(parts, line)
	}
	return strings.Join(parts, "; ")
}

// quoteLine appends a numbered line of the input to text. The kernel's own
// refusals come at COMMIT, so only numbers of rules help.
func quoteLine(text, number, input string) string {
	n, err := strconv.Atoi(number)
	lines := strings.Split(input, "\n")
	if err != nil || n < 1 || n > len(lines) {
		return text
	}
	return text + " (" + lines[n-1] + ")"
}

// locked makes an error ErrLocked if it says that the lock was held. The exit
// status, 4, would not do: iptables-nft ends with it for other reasons too.
func locked(err error) error {
	if err == nil || !strings.Contains(err.Error(), "xtables lock") {
		return err
	}
	return fmt.Errorf("%w (waited %s): %w", ErrLocked, LockWait, err)
}
