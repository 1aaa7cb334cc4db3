#include "relay.h"

#include "ns3/ipv4-header.h"
#include "ns3/simulator.h"
#include "ns3/udp-header.h"

#include <algorithm>

namespace peerloom
{

namespace
{

constexpr uint16_t kIpv4 = 0x0800;
constexpr uint16_t kPort = 9; // discard
constexpr uint32_t kHeaderBytes = 28;
// The first byte of a datagram: how often it may still be relayed.
constexpr uint8_t kRelays = 1;

// 198.18.0.0/15 is set aside for tests of networks (RFC 2544), so no host of ours has such an address.
ns3::Ipv4Address
AddressOf(uint32_t index)
{
    return ns3::Ipv4Address((198u << 24 | 18u << 16) + index + 1);
}

} // namespace

Relay::Relay(Membership& membership,
             uint32_t self,
             std::vector<uint32_t> peers,
             uint64_t bitsPerSecond,
             uint32_t mtu)
    : m_membership(membership),
      m_self(self),
      m_peers(std::move(peers)),
      m_datagramBytes(std::min(mtu, 9000u) - kHeaderBytes),
      m_meanInterval(0),
      m_choice(ns3::CreateObject<ns3::UniformRandomVariable>()),
      m_wait(ns3::CreateObject<ns3::ExponentialRandomVariable>())
{
    double frameBits = 8.0 * (m_datagramBytes + kHeaderBytes + kEthernetHeaderBytes);
    if (bitsPerSecond > 0)
    {
        m_meanInterval = frameBits * (1 + kRelays) * m_peers.size() / bitsPerSecond;
    }
    m_peers.erase(std::remove(m_peers.begin(), m_peers.end(), self), m_peers.end());
    Self().device->SetPromiscReceiveCallback(ns3::MakeCallback(&Relay::Receive, this));
    ScheduleNext();
}

Station&
Relay::Self() const
{
    return m_membership.stations[m_self];
}

void
Relay::ScheduleNext()
{
    if (m_meanInterval > 0)
    {
        ns3::Time wait = ns3::Seconds(m_wait->GetValue(m_meanInterval, 100 * m_meanInterval));
        ns3::Simulator::ScheduleWithContext(Self().node->GetId(), wait, &Relay::SendNext, this);
    }
}

void
Relay::SendNext()
{
    std::vector<uint8_t> content(m_datagramBytes, 0);
    content[0] = kRelays;
    Send(ns3::Create<ns3::Packet>(content.data(), content.size()));
    ScheduleNext();
}

void
Relay::Send(ns3::Ptr<ns3::Packet> datagram)
{
    const Station& to = m_membership.stations[m_peers[m_choice->GetInteger(0, m_peers.size() - 1)]];
    ns3::UdpHeader udp;
    udp.SetSourcePort(kPort);
    udp.SetDestinationPort(kPort);
    datagram->AddHeader(udp);
    ns3::Ipv4Header ip;
    ip.SetSource(AddressOf(m_self));
    ip.SetDestination(AddressOf(to.index));
    ip.SetProtocol(17);
    ip.SetTtl(64);
    ip.SetPayloadSize(datagram->GetSize());
    ip.EnableChecksum();
    datagram->AddHeader(ip);
    Self().device->Send(datagram, to.mac, kIpv4);
}

bool
Relay::Receive(ns3::Ptr<ns3::NetDevice>,
               ns3::Ptr<const ns3::Packet> packet,
               uint16_t protocol,
               const ns3::Address& from,
               const ns3::Address& to,
               ns3::NetDevice::PacketType)
{
    Frame frame{*packet,
                ns3::Mac48Address::ConvertFrom(from),
                ns3::Mac48Address::ConvertFrom(to),
                protocol};
    // A host's broadcasts arrive here too; only what comes from its own kind is stored.
    if (m_membership.Deliver(Self(), frame) && frame.to == Self().mac && protocol == kIpv4)
    {
        Store(*packet);
    }
    return true;
}

void
Relay::Store(const ns3::Packet& packet)
{
    uint8_t content[kHeaderBytes + 1];
    if (packet.CopyData(content, sizeof content) < sizeof content)
    {
        return;
    }
    m_store.push_back(packet.Copy());
    if (m_store.size() > kStoredPackets)
    {
        m_store.pop_front();
    }
    uint8_t left = content[kHeaderBytes];
    if (left == 0 || m_peers.empty())
    {
        return;
    }
    std::vector<uint8_t> relayed(packet.GetSize() - kHeaderBytes, 0);
    relayed[0] = left - 1;
    ++m_relayed;
    Send(ns3::Create<ns3::Packet>(relayed.data(), relayed.size()));
}

uint64_t
Relay::Relayed() const
{
    return m_relayed;
}

size_t
Relay::Stored() const
{
    return m_store.size();
}

} // namespace peerloom
