package main

import (
	"errors"
	"log/slog"

	"pktdirector/control"
)

// listenAPI opens the API's unix socket and, where the file asks for it, its TCP
// listener; those that a predecessor has opened are gone on with.
func listenAPI(c *control.Config, taken listeners, shown control.Source, log *slog.Logger) (s *control.Server, err error) {
	if taken.api != nil {
		s = control.ListenOn(c.Control, taken.api, shown, log)
		s.Leave(true) // the predecessor's, so far
	} else if s, err = control.Listen(c.Control, shown, log); err != nil {
		return nil, err
	}
	switch {
	case c.API.Listen == "":
		return s, nil
	case taken.apiTCP != nil:
		err = s.ListenTCPOn(c.API, taken.apiTCP)
	default:
		err = s.ListenTCP(c.API)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
