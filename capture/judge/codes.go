package judge

// Code names a kind of finding. Codes are stable.
type Code string

// What can be found, worst and most likely the cause of others first. docs/debugging.md
// lists them.
const (
	ARPConflict        Code = "arp-conflict"
	ReplyBypass        Code = "nat-reply-bypass"
	WrongAddress       Code = "reply-wrong-address"
	ServerReset        Code = "server-down-reset"
	ServerICMP         Code = "server-down-icmp"
	ServerNoARP        Code = "server-down-noarp"
	VIPMissing         Code = "vip-missing"
	ServerSilent       Code = "server-down-silent"
	ReplyViaDirector   Code = "reply-via-director"
	ReplyNotForwarded  Code = "reply-not-forwarded"
	MTUBlackHole       Code = "mtu-blackhole"
	MTUIgnored         Code = "mtu-icmp-ignored"
	NoServer           Code = "no-server-available"
	NoService          Code = "no-service"
	NotForwarded       Code = "syn-not-forwarded"
	Unanswered         Code = "syn-unanswered"
	SYNACKUnanswered   Code = "syn-ack-unanswered"
	PortReuse          Code = "port-reuse-old-server"
	WeightZero         Code = "weight0-persistence"
	DirectorReset      Code = "reset-by-director"
	ServerMidReset     Code = "reset-by-server"
	DataUnanswered     Code = "data-unanswered"
	NotExplained       Code = "scheduler-not-explained"
	ConnectionOverflow Code = "connection-overflow"
)

// Codes lists every code, in the order in which findings are shown.
func Codes() []Code {
	return []Code{
		ARPConflict, ReplyBypass, WrongAddress, ServerReset, ServerICMP, ServerNoARP, VIPMissing, PortReuse, WeightZero, ServerSilent,
		ReplyViaDirector, ReplyNotForwarded, MTUBlackHole, MTUIgnored, NoServer, NoService, NotForwarded, Unanswered,
		SYNACKUnanswered, DirectorReset, ServerMidReset, DataUnanswered, NotExplained, ConnectionOverflow,
	}
}
