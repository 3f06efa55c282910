package main

import (
	"reflect"

	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/state"
	"github.com/kube-ipvs/kube-ipvs/watch"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"
)

// events turns what is wrong with Services into one Warning Event each, and
// into one log line. It is used by the loop's goroutine alone.
type events struct {
	recorder watch.Recorder
	log      *zap.Logger
	known    map[state.Name][]desired.Problem
}

func newEvents(client kubernetes.Interface, log *zap.Logger) *events {
	e := &events{log: log, known: map[state.Name][]desired.Problem{}}
	if client != nil {
		e.recorder = watch.NewRecorder(client)
	}
	return e
}

// Problems tells those problems of a Service that it did not have before.
func (o *observer) Problems(name state.Name, now []desired.Problem) { o.events.tell(name, now) }

func (e *events) tell(name state.Name, now []desired.Problem) {
	was := e.known[name]
	if len(now) == 0 {
		delete(e.known, name)
		return
	}
	e.known[name] = now
	for _, p := range now {
		if contains(was, p) {
			continue
		}
		e.log.Warn("Service is wrong", zap.Stringer("service", name), zap.String("reason", p.Reason), zap.String("text", p.Message))
		if e.recorder != nil {
			e.recorder.Warn(p.Service, p.UID, p.Reason, p.Message)
		}
	}
}

func contains(problems []desired.Problem, p desired.Problem) bool {
	for _, q := range problems {
		if reflect.DeepEqual(p, q) {
			return true
		}
	}
	return false
}
