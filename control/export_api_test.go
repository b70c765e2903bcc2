package control

import (
	"log/slog"
	"net/http"
	"time"
)

// Handler answers the API's requests without a socket.
func Handler(source Source) http.Handler {
	return (&api{Source: source, log: slog.New(slog.DiscardHandler)}).mux(Operations())
}

// MaxConns is maxConns.
const MaxConns = maxConns

// RequestTimeouts are how long a client may take for a request's header, and for all of
// it.
func RequestTimeouts() (header, request time.Duration) {
	s := newHTTPServer(nil, slog.New(slog.DiscardHandler))
	return s.ReadHeaderTimeout, s.ReadTimeout
}
