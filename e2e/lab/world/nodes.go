package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

// nodeObject is what the API knows of a node of the topology.
func nodeObject(h scenario.HostSpec) object {
	return object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": h.Name, "labels": map[string]any{
			"kubernetes.io/hostname": h.Name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": h.Zone,
		}},
		"spec": map[string]any{
			"podCIDR": h.PodsV4.String(), "podCIDRs": []any{h.PodsV4.String(), h.PodsV6.String()},
		},
		"status": map[string]any{
			"addresses": []any{
				map[string]any{"type": "InternalIP", "address": h.IPv4.String()},
				map[string]any{"type": "InternalIP", "address": h.IPv6.String()},
				map[string]any{"type": "Hostname", "address": h.Name},
			},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Lab"}},
		},
	}
}

// createNodes makes the Node objects anew. They belong to another field manager than the scenario's own changes.
func (a *api) createNodes(ctx context.Context) error {
	for _, h := range scenario.Hosts() {
		if !h.IsNode() {
			continue
		}
		node := nodeObject(h)
		var created object
		if err := a.do(ctx, http.MethodPost, "/api/v1/nodes?fieldManager=lab", jsonType, node, &created); err != nil {
			return fmt.Errorf("creating Node %s: %w", h.Name, err)
		}
		created["status"] = node["status"]
		path := "/api/v1/nodes/" + h.Name + "/status?fieldManager=lab"
		if err := a.do(ctx, http.MethodPut, path, jsonType, created, nil); err != nil {
			return fmt.Errorf("writing the status of Node %s: %w", h.Name, err)
		}
	}
	return nil
}

// reset deletes every object that a world may have left: those that it applied, and what proxies and the API server
// made beside them. The API server's own Service stays.
func (a *api) reset(ctx context.Context, applied map[key]bool) error {
	var errs []error
	for k := range applied {
		if k.resource.Kind == "Namespace" {
			continue // last, when it is empty
		}
		if err := a.delete(ctx, k); err != nil && !isNotFound(err) {
			errs = append(errs, err)
		}
	}
	for _, name := range []string{"services", "endpointslices", "endpoints", "nodes", "events"} {
		if err := a.deleteAll(ctx, name); err != nil {
			errs = append(errs, err)
		}
	}
	for k := range applied {
		if k.resource.Kind != "Namespace" || k.name == "default" {
			continue
		}
		if err := a.delete(ctx, k); err != nil && !isNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// deleteAll deletes the objects of a resource in all namespaces, without waiting.
func (a *api) deleteAll(ctx context.Context, name string) error {
	r, err := a.byName(ctx, name)
	if err != nil {
		return err
	}
	items, err := a.list(ctx, r, url.Values{"resourceVersion": {"0"}})
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range items {
		k := key{r, o.text("metadata", "namespace"), o.text("metadata", "name")}
		if k.namespace == "default" && k.name == "kubernetes" {
			continue
		}
		err := a.do(ctx, http.MethodDelete, k.path(), jsonType, nil, nil)
		if err != nil && !isNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting %s: %w", k, err))
		}
	}
	return errors.Join(errs...)
}
