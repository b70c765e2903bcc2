package main

import (
	"os"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// remote is the director that a command asks.
type remote struct{ control.Remote }

// addFlags gives cmd the flags that say which. Where one is not given, an
// environment variable may say it.
func (r *remote) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.Address, "control", "", "the director's control socket, or https://host:port (default "+control.DefaultSocket+")")
	f.StringVar(&r.CA, "ca", "", "with https: certificates that vouch for the director, a PEM file")
	f.StringVar(&r.Cert, "cert", "", "with https: the client's certificate, a PEM file")
	f.StringVar(&r.Key, "key", "", "with https: the certificate's key, a PEM file")
	f.StringVar(&r.TokenFile, "token-file", "", "with https: a file with the bearer token")
}

// client returns a client for the director that the flags or the environment
// (PKTDIRECTOR_CONTROL, _CA, _CERT, _KEY, _TOKEN_FILE) name.
func (r *remote) client() (*control.Client, error) {
	to := r.Remote
	if to.Address == "" {
		to = control.Remote{Address: control.DefaultSocket}
		if named := os.Getenv("PKTDIRECTOR_CONTROL"); named != "" {
			to.Address = named
		}
	}
	for name, value := range map[string]*string{"CA": &to.CA, "CERT": &to.Cert, "KEY": &to.Key, "TOKEN_FILE": &to.TokenFile} {
		if *value == "" && len(to.Address) > 0 && to.Address[0] != '/' {
			*value = os.Getenv("PKTDIRECTOR_" + name)
		}
	}
	return control.Dial(to)
}
