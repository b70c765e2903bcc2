package main

import (
	"errors"
	"net/url"

	"github.com/spf13/cobra"

	"pktdirector/control"
)

// queryFlags are flags that choose connections, by the names and in the words of
// the API's queries.
type queryFlags struct {
	parameters []control.Parameter
	values     map[string]*string
}

// addFlags gives cmd a flag for each parameter.
func (q *queryFlags) addFlags(cmd *cobra.Command, parameters ...[]control.Parameter) {
	q.values = map[string]*string{}
	for _, some := range parameters {
		q.parameters = append(q.parameters, some...)
	}
	for _, p := range q.parameters {
		q.values[p.Name] = cmd.Flags().String(p.Name, "", p.Summary)
	}
}

// given returns the flags that the command line has.
func (q *queryFlags) given(cmd *cobra.Command) url.Values {
	v := url.Values{}
	for _, p := range q.parameters {
		if cmd.Flags().Changed(p.Name) {
			v.Set(p.Name, *q.values[p.Name])
		}
	}
	return v
}

// read returns the query, and an error of usage for what makes no sense.
func (q *queryFlags) read(cmd *cobra.Command) (control.ConnQuery, error) {
	query, err := control.ParseConnQuery(q.given(cmd))
	if wrong := (*control.ParameterError)(nil); errors.As(err, &wrong) {
		return query, usageError(&control.ParameterError{Name: "--" + wrong.Name, Value: wrong.Value, Detail: wrong.Detail})
	}
	return query, err
}
