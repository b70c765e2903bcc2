// Package control is how people and programs tell the director what to do and
// see what it does: the configuration file, the API on a unix socket with its
// client, and ipvsadm's command lines and listings.
//
// It balances nothing and touches no interface. Start reading at config.go.
package control
