package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
)

// maxRequest is the largest body of a request in bytes: what -R reads for
// 100,000 servers.
const maxRequest = 16 << 20

// readBody reads a request's JSON, one value.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if t := r.Header.Get("Content-Type"); t != "" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != mediaJSON && media != mediaMergePatch {
			return nil, problem(http.StatusUnsupportedMediaType, "Content-Type %q: the body must be %s (curl sends it so with --json)", t, mediaJSON)
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, problem(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes: send less at a time", large.Limit)
	}
	if err != nil {
		return nil, problem(http.StatusBadRequest, "the body could not be read: %v", err)
	}
	guestOf(r).ask()
	return body, nil
}

// mediaMergePatch is what a PATCH may be called (RFC 7396).
const mediaMergePatch = "application/merge-patch+json"

// decodeBody reads a request's body into a Go value, strictly. A body of
// json.RawMessage is left to the handler.
func decodeBody[Body any](w http.ResponseWriter, r *http.Request) (Body, error) {
	var body Body
	if typeOf[Body]() == nil {
		return body, nil
	}
	data, err := readBody(w, r)
	if err != nil {
		return body, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&body); err != nil {
		return body, badJSON(err, reflect.TypeFor[Body]())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return body, problem(http.StatusBadRequest, "something follows the JSON value of the body: one at a time")
	}
	return body, nil
}

// badJSON says what is wrong with a body that should have been of type t.
func badJSON(err error, t reflect.Type) *Problem {
	p := problem(http.StatusBadRequest, "the body is no JSON of a %s (GET /v1/openapi.json describes it): %v", t.Name(), err)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		p.Faults = []Fault{{Place: wrong.Field, Value: wrong.Value, Detail: p.Detail}}
	}
	return p
}
