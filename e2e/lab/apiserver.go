package lab

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The users of the API: the lab itself, and the proxies with the rights that Kubernetes gives to kube-proxy.
const (
	adminToken = "lab-admin"
	proxyToken = "lab-proxy"
	tokens     = adminToken + ",lab,lab,system:masters\n" + proxyToken + ",system:kube-proxy,system:kube-proxy\n"
)

// startAPI starts etcd and kube-apiserver in the box. It does not wait for them.
func startAPI(dir string, failed func(error)) error {
	key := filepath.Join(dir, "service-account.key")
	if err := writeKey(key); err != nil {
		return err
	}
	tokenFile := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokenFile, []byte(tokens), 0o600); err != nil {
		return err
	}
	if err := background(dir, "etcd", failed, "etcd",
		"--data-dir=/dev/shm/etcd", // a tmpfs: nothing waits for a disk
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--log-level=warn", "--logger=zap",
	); err != nil {
		return err
	}
	return background(dir, "kube-apiserver", failed, filepath.Join(dir, "kube-apiserver"),
		"--etcd-servers=http://127.0.0.1:2379",
		"--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112",
		"--token-auth-file="+tokenFile, "--authorization-mode=RBAC",
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--cert-dir="+filepath.Join(dir, "apiserver"),
		"--bind-address=0.0.0.0", fmt.Sprintf("--secure-port=%d", apiPort), "--advertise-address="+boxAddress.Addr().String(),
		// No controller would make service accounts, or take the not-ready taint off a Node.
		"--disable-admission-plugins="+strings.Join([]string{"ServiceAccount", "TaintNodesByCondition"}, ","),
		"--profiling=false",
	)
}

func writeKey(path string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}
