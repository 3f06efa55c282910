package watch

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/state"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	apievents "k8s.io/client-go/tools/events"
)

// Recorder writes Events about Services to the API (events.k8s.io/v1). It
// returns at once; equal Events are folded into a series.
type Recorder interface {
	Warn(service state.Name, uid, reason, message string)
}

type eventRecorder struct{ events apievents.EventRecorder }

// NewRecorder returns a Recorder that reports as kube-ipvs.
func NewRecorder(client kubernetes.Interface) Recorder {
	b := apievents.NewBroadcaster(&apievents.EventSinkImpl{Interface: client.EventsV1()})
	_ = b.StartRecordingToSinkWithContext(context.Background())
	return &eventRecorder{events: b.NewRecorder(scheme.Scheme, "kube-ipvs")}
}

func (r *eventRecorder) Warn(service state.Name, uid, reason, message string) {
	about := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name, UID: types.UID(uid),
	}
	r.events.Eventf(about, nil, corev1.EventTypeWarning, reason, "Sync", "%s", message)
}
