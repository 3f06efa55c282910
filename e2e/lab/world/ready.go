package world

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// readyLimit is how long a proxy may take from its start to its first healthy answer. kube-proxy needs most of it.
const readyLimit = 2 * time.Minute

// kubernetesServer is the beginning of the line in /proc/net/ip_vs of the virtual server of default/kubernetes,
// 10.96.0.1:443 in hexadecimal.
const kubernetesServer = "TCP  0A600001:01BB "

// awaitReady waits until the proxy answers its health check with 200 and has made the virtual server of
// default/kubernetes.
func (p *proxy) awaitReady(ctx context.Context, limit time.Duration) error {
	address, err := healthAddress(p.config)
	if err != nil {
		return err
	}
	client := p.client()
	defer client.CloseIdleConnections()
	var ended error
	err = await(ctx, limit, func() error {
		if ended = p.Ended(); ended != nil {
			return nil
		}
		if err := p.healthy(ctx, client, address); err != nil {
			return err
		}
		if p.config["mode"] != "ipvs" {
			return nil
		}
		return p.space.Do(hasKubernetes)
	})
	if ended != nil {
		return ended
	}
	if err != nil && ctx.Err() == nil {
		return p.fault("did not become ready: %v", err)
	}
	return err
}

// client calls from inside the node.
func (p *proxy) client() *http.Client {
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = p.space.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 10 * time.Second}
}

func (p *proxy) healthy(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("healthz: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("healthz: status %s", response.Status)
	}
	return nil
}

// hasKubernetes looks for the virtual server in the namespace of the calling thread.
func hasKubernetes() error {
	file, err := os.Open("/proc/thread-self/net/ip_vs")
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), kubernetesServer) {
			return nil
		}
	}
	return errors.Join(lines.Err(), errors.New("there is no virtual server for default/kubernetes"))
}
