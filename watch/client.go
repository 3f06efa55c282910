package watch

import (
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Client returns a client for the API server that a kubeconfig file names;
// master, if not empty, replaces the file's server. Without both it is the one
// of the Pod that the process runs in. It makes no connection.
func Client(kubeconfig, master, contentType, acceptContentTypes string, qps float32, burst int, userAgent string) (kubernetes.Interface, error) {
	config, err := restConfig(kubeconfig, master)
	if err != nil {
		return nil, err
	}
	config.ContentType = contentType
	config.AcceptContentTypes = acceptContentTypes
	config.QPS = qps
	config.Burst = burst
	config.UserAgent = userAgent
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making an API client for %s: %w", config.Host, err)
	}
	return client, nil
}

func restConfig(kubeconfig, master string) (*rest.Config, error) {
	if kubeconfig == "" && master == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no API server is known: give --kubeconfig FILE (or clientConnection.kubeconfig) or --master URL, or run in a Pod, where KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are set")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the Pod's service account (is automountServiceAccountToken off?): %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: master}},
	).ClientConfig()
	if err != nil && kubeconfig == "" {
		return nil, fmt.Errorf("using --master %s: %w", master, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w; make it a file that \"kubectl --kubeconfig %s get nodes\" works with", kubeconfig, err, kubeconfig)
	}
	return config, nil
}
