package control

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Operation is one request that the API answers. The server is built from the list
// of them, and the OpenAPI document and the tests of both.
type Operation struct {
	Method  string
	Path    string // as net/http's ServeMux takes it: /v1/services/{service}
	Summary string // one line
	Changes bool   // it changes the director
	// Request and Response are the Go types of the bodies' JSON; nil: no body. A
	// response of another Media than JSON is a sequence of them.
	Request, Response reflect.Type
	Media             string // of the response: mediaJSON, mediaLines or mediaEvents
	Query             []Parameter
	serve             func(*api, http.ResponseWriter, *http.Request)
}

// Parameter is one that a request's query may have.
type Parameter struct{ Name, Summary string }

// Media types of answers.
const (
	mediaJSON   = "application/json"
	mediaLines  = "application/x-ndjson" // one JSON value a line
	mediaEvents = "text/event-stream"
)

// api is what handlers work with.
type api struct {
	Source
	log *slog.Logger
}

// writeTimeout is how long a client may take to read an answer, or linesDeadline
// lines of it.
const (
	writeTimeout  = time.Minute
	linesDeadline = 1024
)

// checkQuery refuses what would be ignored.
func (o *Operation) checkQuery(r *http.Request) error {
	for name := range r.URL.Query() {
		if slices.ContainsFunc(o.Query, func(p Parameter) bool { return p.Name == name }) {
			continue
		}
		known := "it takes none"
		if len(o.Query) > 0 {
			var names []string
			for _, p := range o.Query {
				names = append(names, p.Name)
			}
			known = "one of " + strings.Join(names, ", ")
		}
		return faultAt(http.StatusBadRequest, "?"+name, r.URL.Query().Get(name), fmt.Sprintf("%s %s knows no such parameter: %s", o.Method, o.Path, known))
	}
	return nil
}

// dryRun reads the parameter dry_run.
func dryRun(r *http.Request) (bool, error) {
	switch v := r.URL.Query().Get("dry_run"); v {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, faultAt(http.StatusBadRequest, "?dry_run", v, fmt.Sprintf("%q is neither true nor false", v))
	}
}

// None is a body that is not there.
type None struct{}

// read makes an operation that shows something: "GET /v1/status".
func read[Answer any](pattern, summary string, show func(*api, *http.Request) (Answer, error)) Operation {
	return newOperation[None, Answer](pattern, summary, mediaJSON, func(a *api, w http.ResponseWriter, r *http.Request) {
		answer, err := show(a, r)
		reply(a, w, r, answer, err)
	})
}

// lines makes an operation that shows as many values as there are, one JSON object a
// line. each yields them until yield returns false; an error it returns comes
// before the first.
func lines[Item any](pattern, summary string, each func(a *api, r *http.Request, yield func(Item) bool) error) Operation {
	return newOperation[None, Item](pattern, summary, mediaLines, func(a *api, w http.ResponseWriter, r *http.Request) {
		e, control := json.NewEncoder(w), http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{}) // the request was read; the answer may take long
		w.Header().Set("Content-Type", mediaLines)
		n := 0
		err := each(a, r, func(i Item) bool {
			if n++; n%linesDeadline == 0 {
				_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
			}
			return e.Encode(i) == nil
		})
		if err != nil {
			writeProblem(a, w, r, err)
		}
	})
}

// stream makes an operation that tells of events as they happen.
func stream(pattern, summary string, serve func(*api, http.ResponseWriter, *http.Request)) Operation {
	return newOperation[None, Event](pattern, summary, mediaEvents, serve)
}

// change makes an operation that changes the director as the request's body says;
// None where it needs no body. An answer of None is 204 No Content.
func change[Body, Answer any](pattern, summary string, do func(*api, *http.Request, Body) (Answer, error)) Operation {
	operation := newOperation[Body, Answer](pattern, summary, mediaJSON, func(a *api, w http.ResponseWriter, r *http.Request) {
		body, err := decodeBody[Body](w, r)
		if err != nil {
			writeProblem(a, w, r, err)
			return
		}
		answer, err := do(a, r, body)
		reply(a, w, r, answer, err)
	})
	operation.Changes = true
	return operation
}

// raw is change for a body that do reads itself: JSON of Body's type.
func raw[Body, Answer any](pattern, summary string, do func(*api, *http.Request, json.RawMessage) (Answer, error)) Operation {
	o := newOperation[Body, Answer](pattern, summary, mediaJSON, func(a *api, w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r)
		if err != nil {
			writeProblem(a, w, r, err)
			return
		}
		answer, err := do(a, r, body)
		reply(a, w, r, answer, err)
	})
	o.Changes = true
	return o
}

// query adds a parameter of the query.
func (o Operation) query(name, summary string) Operation {
	o.Query = append(o.Query[:len(o.Query):len(o.Query)], Parameter{name, summary})
	return o
}

func newOperation[Body, Answer any](pattern, summary, media string, serve func(*api, http.ResponseWriter, *http.Request)) Operation {
	method, path, _ := strings.Cut(pattern, " ")
	return Operation{
		Method: method, Path: path, Summary: summary, Media: media, serve: serve,
		Request: typeOf[Body](), Response: typeOf[Answer](),
	}
}

// typeOf is nil for None.
func typeOf[T any]() reflect.Type {
	if t := reflect.TypeFor[T](); t != reflect.TypeFor[None]() {
		return t
	}
	return nil
}

// mux builds the server's from the operations.
func (a *api) mux(operations []Operation) http.Handler {
	mux := http.NewServeMux()
	for _, o := range operations {
		mux.HandleFunc(o.Method+" "+o.Path, func(w http.ResponseWriter, r *http.Request) {
			// Who reads nothing holds nothing for ever. A stream sets it anew.
			control := http.NewResponseController(w)
			_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
			// Nor does who sends a body that nobody reads: a stream's answer has no
			// deadline for reading, what follows it has.
			defer func() { _ = control.SetReadDeadline(time.Now().Add(requestTimeout)) }()
			if o.Request == nil {
				guestOf(r).ask()
			}
			defer guestOf(r).rest()
			if err := o.checkQuery(r); err != nil {
				writeProblem(a, w, r, err)
				return
			}
			o.serve(a, w, r)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		unknown := &statusOnly{header: w.Header(), status: http.StatusNotFound}
		h.ServeHTTP(unknown, r)
		w.Header().Del("Content-Length")
		if unknown.status == http.StatusMethodNotAllowed {
			writeProblem(a, w, r, problem(unknown.status, "%s cannot be asked of %s: %s can", r.Method, r.URL.Path, w.Header().Get("Allow")))
			return
		}
		writeProblem(a, w, r, problem(http.StatusNotFound, "%s is nothing here: GET /v1/openapi.json lists what is", r.URL.Path))
	})
}

// statusOnly is an answer of which the text is thrown away.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }

func reply(a *api, w http.ResponseWriter, r *http.Request, answer any, err error) {
	switch _, none := answer.(None); {
	case err != nil:
		writeProblem(a, w, r, err)
	case none:
		w.WriteHeader(http.StatusNoContent)
	default:
		writeJSON(w, answer)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", mediaJSON)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the client went away: nothing to tell it
}
