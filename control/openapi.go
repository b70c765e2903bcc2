package control

import (
	_ "embed"
	"encoding/json"
	"net/http"
)

// openAPI is the OpenAPI 3.1 document of the operations, as "go test ./control
// -run OpenAPI -update" writes it from them, their types and these types'
// comments.
//
//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the document that describes the API, as GET /v1/openapi.json
// answers.
func OpenAPI() []byte { return append([]byte(nil), openAPI...) }

func (a *api) showOpenAPI(*http.Request) (json.RawMessage, error) { return OpenAPI(), nil }
