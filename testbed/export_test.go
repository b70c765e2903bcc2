package testbed

// ParseTopology is parseTopology.
var ParseTopology = parseTopology
