package control_test

import (
	"net/url"
	"testing"

	"pktdirector/control"
)

// FuzzExplainQuery: a query is refused, or written and read again as the same.
func FuzzExplainQuery(f *testing.F) {
	f.Add("198.51.100.7:40000", "192.0.2.10:80", "tcp", "true")
	f.Add("[2001:db8::7]:40000", "[2001:db8::10]:80", "sctp", "false")
	f.Fuzz(func(t *testing.T, client, vip, protocol, would string) {
		q, err := control.ParseExplainQuery(url.Values{"client": {client}, "vip": {vip}, "protocol": {protocol}, "would": {would}})
		if err != nil {
			return
		}
		if again, err := control.ParseExplainQuery(q.Values()); err != nil || again != q {
			t.Errorf("%v is written as %q: %v, %v", q, q.Values().Encode(), again, err)
		}
	})
}
