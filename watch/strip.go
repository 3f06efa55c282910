package watch

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The functions here free what no conversion reads before an informer keeps
// the object: on a large cluster that is most of it.

func stripMeta(m *metav1.ObjectMeta, label, annotation string) {
	m.ManagedFields = nil
	m.OwnerReferences = nil
	m.Finalizers = nil
	m.Labels = only(m.Labels, label)
	m.Annotations = only(m.Annotations, annotation)
}

// only returns the entry with the given key, if there is one.
func only(m map[string]string, key string) map[string]string {
	if v, ok := m[key]; ok {
		return map[string]string{key: v}
	}
	return nil
}

func stripService(s *corev1.Service) {
	stripMeta(&s.ObjectMeta, "", schedulerAnnotation)
	s.Spec.Selector = nil
	s.Status.Conditions = nil
}

func stripSlice(s *discoveryv1.EndpointSlice) {
	stripMeta(&s.ObjectMeta, discoveryv1.LabelServiceName, corev1.EndpointsLastChangeTriggerTime)
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Hostname, e.Zone, e.DeprecatedTopology = nil, nil, nil
		if len(e.Addresses) > 1 {
			e.Addresses = e.Addresses[:1:1]
		}
		if e.TargetRef != nil {
			e.TargetRef = &corev1.ObjectReference{Name: e.TargetRef.Name}
		}
	}
}

func stripNode(n *corev1.Node) {
	stripMeta(&n.ObjectMeta, corev1.LabelTopologyZone, "")
	n.Status = corev1.NodeStatus{Addresses: n.Status.Addresses}
}
