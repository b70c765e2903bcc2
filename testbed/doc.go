// Package testbed builds labs in which a director balances real TCP: machines
// as network namespaces, segments as bridges, real servers, routers and a
// client. Topologies are data (topologies/*.yaml), which a Vagrantfile reads
// too; what makes a machine a client, router, director or real server is a
// role, and a role is nothing but a list of operations, each of which can print
// the command that a person would type.
//
// Read topology.go first, then op.go and role.go; lab_linux.go joins them,
// keeper_linux.go keeps a lab up, and demo_linux.go puts it to work.
//
// The package does not balance anything itself: the director in a lab is the
// program's own "run" command.
package testbed
