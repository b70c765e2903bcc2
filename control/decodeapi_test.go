package control_test

import (
	"bytes"
	"strings"
	"testing"

	"pktdirector/control"
)

func TestTheTCPListenerIsNeverOpen(t *testing.T) {
	const tls = "cert: /c, key: /k"
	for _, c := range []struct{ name, api, want string }{
		{"TLS and certificates of clients", "{listen: '192.0.2.1:9443', tls: {" + tls + ", client_ca: /ca}}", ""},
		{"TLS and a token", "{listen: '[2001:db8::1]:9443', tls: {" + tls + "}, token_file: /t}", ""},
		{"both", "{listen: '0.0.0.0:9443', tls: {" + tls + ", client_ca: /ca}, token_file: /t}", ""},
		{"a token on loopback", "{listen: '127.0.0.1:9443', token_file: /t}", ""},
		{"a token on IPv6 loopback", "{listen: '[::1]:9443', token_file: /t}", ""},
		{"nothing", "{listen: '127.0.0.1:9443'}", "d.yaml:1:6: api: anybody could change the director: add tls with client_ca, or tls and token_file"},
		{"TLS alone", "{listen: '192.0.2.1:9443', tls: {" + tls + "}}", "api.tls: anybody could change the director: add client_ca"},
		{"TLS alone on loopback", "{listen: '127.0.0.1:9443', tls: {" + tls + "}}", "api.tls: anybody could change the director"},
		{"a token in the clear", "{listen: '192.0.2.1:9443', token_file: /t}", "api.listen: without tls the token would pass 192.0.2.1:9443 in the clear: add tls"},
		{"a token in the clear on every address", "{listen: '0.0.0.0:9443', token_file: /t}", "in the clear"},
		{"no address", "{token_file: /t}", "api: listen is missing"},
		{"no port", "{listen: 192.0.2.1, token_file: /t}", `api.listen: "192.0.2.1" is no address with a port: write one like 192.0.2.1:9443`},
		{"a name", "{listen: 'localhost:9443', token_file: /t}", "is no address with a port"},
		{"no key", "{listen: '192.0.2.1:9443', tls: {cert: /c, client_ca: /ca}}", "api.tls: key is missing"},
		{"a relative path", "{listen: '127.0.0.1:9443', token_file: t}", `api.token_file: "t" is no absolute path`},
		{"an unknown key", "{listen: '127.0.0.1:9443', token: abc}", "api.token: is not known here: the keys are listen, tls, token_file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := control.Parse("d.yaml", []byte("api: "+c.api+"\n"+good))
			switch {
			case c.want != "":
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			case err != nil:
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := got.Print(&b); err != nil {
				t.Fatal(err)
			}
			again, err := control.Parse("printed", b.Bytes())
			if err != nil || again.API != got.API || got.API.Listen == "" {
				t.Errorf("printed and read again: %+v (%v), want %+v", again, err, got.API)
			}
		})
	}
}
