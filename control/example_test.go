package control_test

import (
	"fmt"
	"os"

	"pktdirector/control"
)

func ExampleParse() {
	_, err := control.Parse("director.yaml", []byte(`
links: [{name: eth0}]
services:
  - vip: 192.0.2.10
    protocol: tcp
    port: 80
    method: dr
    servers:
      - {address: 10.2.0.1, port: 8080}
`))
	fmt.Println(err)
	// Output:
	// director.yaml:9:35: services[0].servers[0].port: 8080 differs from the service's port 80, and dr rewrites no ports: write 80 or leave it out
}

func ExampleWriteConnections() {
	_ = control.WriteConnections(os.Stdout, without([]control.Connection{{
		Protocol: "TCP", State: "ESTABLISHED", Expires: 899,
		Client: "198.51.100.7", ClientPort: 1000, VIP: "192.0.2.10", Port: 80, Destination: "10.2.0.1", DestinationPort: 8080,
	}}))
	// Output:
	// IPVS connection entries
	// pro expire state       source             virtual            destination
	// TCP 14:59  ESTABLISHED 198.51.100.7:1000  192.0.2.10:80      10.2.0.1:8080
}
