package config

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/kube-proxy/config/v1alpha1"
)

const kind = "KubeProxyConfiguration"

// readFile returns the configuration in a file as it stands there, without
// defaults. A field that does not exist is a warning, as newer and older
// kube-proxies have other ones.
func readFile(path string) (*v1alpha1.KubeProxyConfiguration, []Warning, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration: %w", err)
	}
	c, strict, err := decode(data)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the configuration %s: %w", path, err)
	}
	var warnings []Warning
	for _, err := range strict {
		warnings = append(warnings, Warning{path, fmt.Sprintf("%v: ignored", err)})
	}
	return c, warnings, nil
}

// decode returns a configuration and, apart from an error, what is not right
// with it by the letter.
func decode(data []byte) (c *v1alpha1.KubeProxyConfiguration, strict []error, err error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	obj, gvk, err := decoder.Decode(data, nil, nil)
	want := v1alpha1.SchemeGroupVersion.WithKind(kind)
	if gvk != nil && *gvk != want || runtime.IsMissingKind(err) || runtime.IsMissingVersion(err) {
		return nil, nil, fmt.Errorf("it must have apiVersion: %s and kind: %s", want.GroupVersion(), want.Kind)
	}
	if s, ok := runtime.AsStrictDecodingError(err); ok {
		strict, err = s.Errors(), nil
	}
	if err != nil {
		return nil, nil, err
	}
	c, ok := obj.(*v1alpha1.KubeProxyConfiguration)
	if !ok {
		return nil, nil, fmt.Errorf("it holds a %T", obj)
	}
	return c, strict, nil
}
