// Package nstest runs a package's tests inside namespaces of their own, so
// that they may make interfaces, routes and firewall rules as an ordinary user
// and leave nothing behind on the host.
//
// A test package calls Main from TestMain; a test that needs the namespaces
// calls Enter, and one that needs something else that may be missing calls
// Require. Read nstest_linux.go first.
package nstest
