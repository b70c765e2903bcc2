package link

import "pktdirector/packet"

// VnetLen is vnetLen.
const VnetLen = vnetLen

// ReadVnet is readVnet.
func ReadVnet(p *packet.Packet, header []byte, frame int) { readVnet(p, header, frame) }

// PutVnet is putVnet.
func PutVnet(b []byte, p *packet.Packet, ether int) { putVnet(b, p, ether) }
