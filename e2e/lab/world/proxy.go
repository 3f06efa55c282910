package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab/netns"
	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

// stopLimit is how long a proxy may take to end after TERM.
const stopLimit = 10 * time.Second

// binary is the proxy under test.
type binary struct{ path, name string }

// args are the usual ones, with more beside them.
func (b binary) args(config string, more []string) []string {
	args := []string{"--config", config}
	if !strings.HasPrefix(b.name, "kube-proxy") {
		args = append([]string{"run"}, args...)
	}
	return append(args, more...)
}

// proxy is the proxy of one node.
type proxy struct {
	binary binary
	node   string
	space  *netns.Space
	dir    string         // of its configuration and log
	config map[string]any // without what a single start lays over

	mu      sync.Mutex
	running *process
}

// process is one life of a proxy.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and been waited for
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *proxy) configFile() string { return filepath.Join(p.dir, p.node+".yaml") }
func (p *proxy) logFile() string    { return filepath.Join(p.dir, p.node+".log") }

func (p *proxy) fault(format string, args ...any) error {
	return &scenario.ProxyError{Node: p.node, Fault: fmt.Sprintf(format, args...)}
}

func (p *proxy) Start(_ context.Context, o scenario.ProxyOptions) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.endedByItself(); err != nil {
		return err
	}
	if p.running != nil {
		return fmt.Errorf("the proxy on %s runs already", p.node)
	}
	if err := writeJSON(p.configFile(), merge(p.config, o.Config)); err != nil {
		return err
	}
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.binary.path, p.binary.args(p.configFile(), o.Args)...)
	fmt.Fprintf(log, "%s lab: starting %s\n", time.Now().Format(time.StampMilli), strings.Join(cmd.Args, " "))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.space.Do(cmd.Start); err != nil {
		return fmt.Errorf("starting the proxy on %s: %w", p.node, err)
	}
	p.running = &process{cmd: cmd, ended: make(chan struct{})}
	go func(life *process) {
		_ = life.cmd.Wait() // its status is in life.cmd.ProcessState
		close(life.ended)
	}(p.running)
	return nil
}

func (p *proxy) Stop(ctx context.Context) error {
	life, err := p.take()
	if err != nil {
		return err
	}
	if err := life.signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-life.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stopLimit):
	}
	if err := life.kill(ctx); err != nil {
		return err
	}
	return p.fault("has not ended %s after TERM", stopLimit)
}

func (p *proxy) Kill(ctx context.Context) error {
	life, err := p.take()
	if err != nil {
		return err
	}
	return life.kill(ctx)
}

// take hands over the running process, whose end is expected from now on.
func (p *proxy) take() (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.endedByItself(); err != nil {
		return nil, err
	}
	if p.running == nil {
		return nil, fmt.Errorf("the proxy on %s does not run", p.node)
	}
	life := p.running
	p.running = nil
	return life, nil
}

func (l *process) signal(s syscall.Signal) error {
	err := l.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (l *process) kill(ctx context.Context) error {
	if err := l.signal(unix.SIGKILL); err != nil {
		return err
	}
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run runs the proxy once, with the configuration of a start but a file of its own.
func (p *proxy) Run(ctx context.Context, o scenario.ProxyOptions) (string, int, error) {
	config := filepath.Join(p.dir, p.node+"-run.yaml")
	if err := writeJSON(config, merge(p.config, o.Config)); err != nil {
		return "", 0, err
	}
	return runIn(ctx, p.space, exec.CommandContext(ctx, p.binary.path, p.binary.args(config, o.Args)...))
}

func (p *proxy) Ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endedByItself()
}

func (p *proxy) endedByItself() error {
	if p.running == nil || !p.running.over() {
		return nil
	}
	state := p.running.cmd.ProcessState
	return p.fault("ended by itself (%s): %s", state, lastLine(p.logFile()))
}

// lastLine returns the last line of a log, as a hint.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return lines[len(lines)-1]
}
