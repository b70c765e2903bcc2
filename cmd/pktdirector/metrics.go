package main

import (
	"log/slog"
	"net"
	"net/http"

	"pktdirector/metrics"
)

// exposed is a source that Prometheus can ask, too.
type exposed struct {
	*source
	handler http.Handler
}

// expose lets Prometheus ask the source.
func expose(s *source, log *slog.Logger) (*exposed, error) {
	h, err := metrics.NewHandler(metrics.New(thisBuild(), s.metricsState), log)
	return &exposed{s, h}, err
}

// Metrics implements control.Exposer.
func (e *exposed) Metrics() http.Handler { return e.handler }

// metricsState is what one answer to Prometheus shows.
func (s *source) metricsState() metrics.State {
	state := metrics.State{Status: s.Status(), Choices: s.director.Choices()}
	state.Memory.Connections, state.Memory.Templates = s.director.TableMemory()
	return state
}

// listenMetrics opens the address at which Prometheus may ask, or goes on at the one
// that a predecessor has opened; nil when none is configured.
func listenMetrics(at string, taken *net.TCPListener, e *exposed, log *slog.Logger) (*metrics.Server, error) {
	switch {
	case at == "":
		return nil, nil
	case taken != nil:
		return metrics.ListenOn(taken, e.handler, log), nil
	}
	return metrics.Listen(at, e.handler, log)
}
