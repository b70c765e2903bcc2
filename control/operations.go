package control

import "net/http"

// Operations lists all that the API answers. Handlers stand in files of their own;
// what they need of the director, Source has.
func Operations() []Operation {
	const dry = "true: tell what would change, and change nothing"
	return []Operation{
		read("GET /v1/health", "Whether the director is alive: its state could be read", (*api).showHealth),
		exposition("GET /metrics", "Metrics in Prometheus's text format", (*api).showMetrics),
		read("GET /v1/openapi.json", "This description of the API, in OpenAPI 3.1", (*api).showOpenAPI),
		read("GET /v1/status", "All that is configured and counted, without the single connections", (*api).showStatus),
		read("GET /v1/config", "The running state as a configuration file", (*api).showConfig),
		stream("GET /v1/events", "What happens, as server-sent events, from now on: decisions, state changes, drops, changes by administrators", streamEvents).queryParameters(EventParameters()),
		newOperation[None, CapturedPacket]("GET /v1/capture", "Each packet as it came and as it left, from now on, with what was done with it", mediaLines, streamCapture).queryParameters(CaptureParameters()),
		read("GET /v1/explain", "A connection's story from the history, or what would become of one", (*api).explain).queryParameters(ExplainParameters()),
		lines("GET /v1/connections", "The connection table, templates of persistent services first", (*api).listConnections).queryParameters(FilterParameters(), OrderParameters()),
		change("DELETE /v1/connections", "End connections, or take templates out of use", (*api).endConnections).queryParameters(FilterParameters()).
			query("all", "true: where no filter is meant").query("dry_run", dry),
		change("POST /v1/ipvsadm", "Carry out a command line of ipvsadm; one that only lists changes nothing", (*api).runIpvsadm),
		read("GET /v1/diagnosis", "What goes wrong for clients, in words", (*api).showDiagnosis),
		read("GET /v1/standby", "Whether the director stands by", (*api).showStandby),
		change("PUT /v1/standby", "Have the director leave every packet to its host, or take over", (*api).setStandby),
		read("GET /v1/services", "All services with their counters, servers and specs", (*api).listServices),
		read("GET /v1/services/{service}", "A service: tcp-192.0.2.10-80, udp-2001:db8::10-53, fwm-1, fwm-1-ipv6", (*api).showService),
		raw[ServiceSpec, Outcome]("PUT /v1/services/{service}", "Have a service be as the spec says; servers left out stay", edit(doPut)).query("dry_run", dry),
		raw[ServiceSpec, Outcome]("PATCH /v1/services/{service}", "Change what the patch names of a service, and nothing else", edit(doPatch)).query("dry_run", dry),
		change("DELETE /v1/services/{service}", "Have a service not be there, nor its servers", remove).query("dry_run", dry),
		read("GET /v1/services/{service}/servers", "The real servers of a service with their counters", (*api).listServers),
		read("GET /v1/services/{service}/servers/{server}", "A real server: 10.2.0.1-8080", (*api).showServer),
		raw[ServerSpec, Outcome]("PUT /v1/services/{service}/servers/{server}", "Have a real server be as the spec says", edit(doPut)).query("dry_run", dry),
		raw[ServerSpec, Outcome]("PATCH /v1/services/{service}/servers/{server}", "Change what the patch names of a real server, and nothing else", edit(doPatch)).query("dry_run", dry),
		change("DELETE /v1/services/{service}/servers/{server}", "Have a real server not be there", remove).query("dry_run", dry),
		read("GET /v1/ruleset", "All services as the configuration file writes them", (*api).showRuleset),
		raw[RulesetSpec, Outcome]("PUT /v1/ruleset", "Have these services be balanced and no others: all of it or nothing", (*api).putRuleset).query("dry_run", dry),
		change("POST /v1/transaction", "Make several changes: all of them or none", (*api).transaction),
		change("POST /v1/zero", "Count everything from now on", (*api).zeroAll),
		change("POST /v1/services/{service}/zero", "Count a service and its servers from now on", (*api).zeroService),
		change("POST /v1/reload", "Load the configuration file again, or only tell what that would do", (*api).reload).query("dry_run", dry),
		change("POST /v1/upgrade", "Have the program that now stands where the director's did take over, connections and all, or only ask whether it could", (*api).upgrade).query("dry_run", dry),
		read("GET /v1/drift", "What was changed by hand since the configuration file was loaded", (*api).showDrift),
	}
}

func (a *api) showStatus(*http.Request) (Status, error) {
	s := a.Status()
	s.Version = APIVersion
	return s, nil
}

// runIpvsadm answers POST /v1/ipvsadm. A command that ipvsadm or the director
// refuses is an answer like any other.
func (a *api) runIpvsadm(r *http.Request, line Line) (Answer, error) {
	line.By = caller(r)
	answer := a.Ipvsadm(line)
	return answer, answer.Refused
}
