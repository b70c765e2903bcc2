#!/bin/bash
# Makes the files of this folder with tools of Debian 12 (tcpdump, wireshark-common,
# tshark, tcpreplay, gzip, zstd, perl, iproute2); needs root, for two
# network namespaces that it removes again. What the tests expect stands in
# ../corpus_test.go, and holds for any run of this script.
#
#     make captures        or     capture/testdata/make.sh FOLDER
set -euo pipefail
out=$(realpath "${1:-$(dirname "$0")}")
work=$(mktemp -d)
near=pktdcap-near-$$ far=pktdcap-far-$$
pids=()
cleanup() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	ip netns del $near 2>/dev/null || true
	ip netns del $far 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

# A small lab: two namespaces and a cable.
ip netns add $near
ip netns add $far
ip -n $near link add near type veth peer name far netns $far
for n in near far; do
	ns=${!n}
	[ $n = near ] && h=1 || h=2
	ip netns exec $ns sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
		net.ipv6.conf.default.router_solicitations=0
	ip -n $ns link set lo up
	ip -n $ns link set $n address 02:00:00:00:00:0$h up
	ip -n $ns addr add 192.0.2.$h/24 dev $n
	ip -n $ns addr add 2001:db8::$h/64 dev $n nodad
done
sleep 2 # for neighbour discovery and listener reports of the start

capture() { # FILE ARGUMENTS: tcpdump in the near namespace
	local file=$1
	shift
	ip netns exec $near tcpdump -n -U -w "$work/$file" "$@" 2>"$work/$file.log" &
	pids+=($!)
	for _ in $(seq 50); do grep -q 'listening on' "$work/$file.log" && return; sleep 0.1; done
	cat "$work/$file.log"
	exit 1
}
finish() {
	sleep 1
	kill -INT "${pids[@]}"
	wait "${pids[@]}" || true
	pids=()
}
talk() { # a datagram and a SYN, which are refused
	ip netns exec $near bash -c "echo datagram > /dev/udp/$1/7" || true
	ip netns exec $near bash -c "echo > /dev/tcp/$1/9" 2>/dev/null || true
}

ip -n $near neigh flush all
ip -n $far neigh flush all
only='host 192.0.2.2 or host 2001:db8::2'
capture ethernet.pcap -i near "$only"
capture sll.pcap -i any -y LINUX_SLL "$only"
capture sll2.pcap -i any -y LINUX_SLL2 "$only"
capture nano-live.pcap -i near --time-stamp-precision=nano "$only"
talk 192.0.2.2
talk 2001:db8::2
finish
capture lo.pcap -i lo
capture lo-any-sll2.pcap -i any -y LINUX_SLL2
talk 127.0.0.1
finish
# dumpcap writes pcapng of two interfaces, with statistics at the end.
ip netns exec $near dumpcap -q -i near -i lo -f 'ip' -w "$work/dumpcap.pcapng" 2>"$work/dumpcap.log" &
pids+=($!)
sleep 2
talk 192.0.2.2
talk 127.0.0.1
finish

cd "$work"
# Byte orders and times. No tool of Debian writes the other byte order.
cat >swap.pl <<'P'
use strict;
local $/;
binmode STDIN;
binmode STDOUT;
my $d = <STDIN>;
if (unpack("V", $d) == 0x0a0d0d0a) {
	my ($o, $at) = ("", 0);
	while ($at < length $d) {
		my ($type, $n) = unpack("VV", substr($d, $at, 8));
		my $b = substr($d, $at + 8, $n - 12);
		my $fixed = {0x0a0d0d0a => "V v2 V2", 1 => "v2 V", 6 => "V5", 5 => "V3"}->{$type} or die "block $type";
		(my $big = $fixed) =~ tr/Vv/Nn/;
		my @f = unpack($fixed, $b);
		my $p = pack($big, @f);
		my $rest = substr($b, length $p);
		if ($type == 6) {
			my $len = ($f[3] + 3) & ~3;
			$p .= substr($rest, 0, $len);
			$rest = substr($rest, $len);
		}
		while (length $rest) {
			my ($code, $len) = unpack("v2", $rest);
			my $v = substr($rest, 4, ($len + 3) & ~3);
			$v = pack("N", unpack("V", $v)) if $type == 6 && $code == 2;
			$v = scalar reverse $v if $type == 1 && $code == 14;
			die "option $code" if $type == 5;
			$p .= pack("n2", $code, $len) . $v;
			last if $code == 0;
			$rest = substr($rest, 4 + length $v);
		}
		$o .= pack("N2", $type, $n) . $p . pack("N", $n);
		$at += $n;
	}
	print $o;
} else {
	my $o = pack("N n2 N4", unpack("V v2 V4", $d));
	for (my $at = 24; $at < length $d;) {
		my @h = unpack("V4", substr($d, $at, 16));
		$o .= pack("N4", @h) . substr($d, $at + 16, $h[2]);
		$at += 16 + $h[2];
	}
	print $o;
}
P
editcap -F nsecpcap nano-live.pcap nano.pcap
editcap -F pcap nano-live.pcap micro.pcap
editcap -F pcapng nano-live.pcap nano.pcapng
editcap -F pcapng ethernet.pcap micro.pcapng
for f in nano.pcap micro.pcap nano.pcapng micro.pcapng; do perl swap.pl <$f >big-endian-$f; done

# Packed.
gzip -9nc nano.pcap >nano.pcap.gz
gzip -9nc nano.pcapng >nano.pcapng.gz
zstd -q -19 --no-progress nano.pcap -o nano.pcap.zst
zstd -q -19 --no-progress nano.pcapng -o nano.pcapng.zst

# Cut: captured in part, and files that end too early.
editcap -F nsecpcap -s 60 nano.pcap snaplen60.pcap
editcap -F pcapng -s 60 nano.pcap snaplen60.pcapng
head -c -20 nano.pcap >cut.pcap
head -c -20 nano.pcapng >cut.pcapng
head -c -40 nano.pcap.gz >cut.pcap.gz
head -c -40 nano.pcap.zst >cut.pcap.zst

# Other link types, from the packets of IP alone.
tcpdump -r nano.pcap --time-stamp-precision=nano -w ip.pcap 'ip or ip6' 2>/dev/null
tcpdump -r nano.pcap --time-stamp-precision=nano -w ip4.pcap 'ip' 2>/dev/null
tcpdump -r nano.pcap --time-stamp-precision=nano -w ip6.pcap 'ip6' 2>/dev/null
editcap -F nsecpcap -L -C 14 -T rawip ip.pcap raw.pcap
editcap -F pcapng -L -C 14 -T rawip ip.pcap raw.pcapng
hex() { # FILE PREFIX: a hex dump of a raw IP file, each packet behind the prefix
	tshark -r "$1" -T jsonraw -j frame 2>/dev/null | perl -ne 'if (/"frame_raw": \[/) { $_ = <>; /"([0-9a-f]+)"/ and print "'"$2"'$1\n" }' |
		while read -r line; do echo "000000 $(sed 's/../& /g' <<<"$line")"; done
}
typed() { # FILE TYPE PREFIX
	hex "$1" "$3" | text2pcap -q -F pcap -l "$2" - typed.tmp
	mv typed.tmp "type$2$4.pcap"
}
editcap -F nsecpcap -L -C 14 -T rawip ip4.pcap raw4.pcap
editcap -F nsecpcap -L -C 14 -T rawip ip6.pcap raw6.pcap
typed raw.pcap 12 '' ''
typed raw.pcap 14 '' ''
typed raw4.pcap 228 '' ''
typed raw6.pcap 229 '' ''
typed raw4.pcap 0 02000000 -ip4
typed raw4.pcap 0 00000002 -ip4-big-endian
typed raw6.pcap 0 1e000000 -ip6
typed raw4.pcap 108 00000002 -ip4
typed raw6.pcap 108 00000018 -ip6
editcap -F pcap -T ieee-802-11-radiotap ip.pcap type127.pcap

# Tags. tcprewrite finishes checksums that offloads had left unfinished.
tcprewrite --fixcsum -i nano.pcap -o fixed.pcap
tcprewrite --enet-vlan=add --enet-vlan-tag=100 --enet-vlan-cfi=0 --enet-vlan-pri=3 -i fixed.pcap -o vlan.pcap
tcprewrite --enet-vlan=add --enet-vlan-tag=200 --enet-vlan-cfi=0 --enet-vlan-pri=0 --enet-vlan-proto=802.1ad -i vlan.pcap -o qinq.pcap

# pcapng with more in it.
mergecap -w two-interfaces.pcapng ethernet.pcap sll.pcap
cat nano.pcapng big-endian-nano.pcapng >two-sections.pcapng
editcap -F pcapng -a 2:'the second packet' -a '3:Grüße' nano.pcap comments.pcapng
# Names of hosts (4), a custom block (0xbad) and one that nobody knows, behind the
# section's header.
perl -e 'local $/; binmode STDIN; binmode STDOUT; my $d = <STDIN>; my $n = unpack("V", substr($d, 4));
	sub block { my ($t, $b) = @_; pack("VV", $t, 12 + length $b) . $b . pack("V", 12 + length $b) }
	print substr($d, 0, $n), block(4, pack("vvC4Z4vv", 1, 8, 192, 0, 2, 2, "far", 0, 0)), block(0xbad, pack("VV", 32473, 1)),
		block(0x7fffffff, "?" x 100), substr($d, $n)' <nano.pcapng >names.pcapng
printf 'CLIENT_RANDOM %064d %096d\n' 1 2 >secret
editcap -F pcapng --inject-secrets tls,secret nano.pcap secrets.pcapng
mergecap -w mixed-types.pcapng raw.pcap type127.pcap
editcap -F nsecpcap -r nano.pcap first.pcap 1-5
editcap -F nsecpcap -r nano.pcap rest.pcap 6-1000
mergecap -F nsecpcap -a -w not-in-order.pcap rest.pcap first.pcap

# Formats that are refused.
editcap -F modpcap micro.pcap modified.pcap
editcap -F snoop micro.pcap snoop.snoop
editcap -F netmon2 micro.pcap netmon.cap
xz -c nano.pcap >nano.pcap.xz
bzip2 -c nano.pcap >nano.pcap.bz2

rm -f ip.pcap ip4.pcap ip6.pcap raw4.pcap raw6.pcap nano-live.pcap
for f in *.pcap *.pcapng *.gz *.zst *.snoop *.cap *.xz *.bz2; do install -m 644 "$f" "$out/$f"; done
