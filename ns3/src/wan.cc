#include "wan.h"

#include "ns3/data-rate.h"
#include "ns3/node.h"

namespace peerloom
{

Wan::Wan(const Options& options, Membership& membership)
    : m_membership(membership),
      m_mtu(options.mtu),
      m_switch(ns3::CreateObject<ns3::Node>())
{
    for (Station& station : membership.stations)
    {
        auto own = options.links.find(station.index);
        AddLink(station, own == options.links.end() ? options.link : own->second);
    }
}

void
Wan::AddLink(Station& station, const LinkOptions& link)
{
    auto near = ns3::CreateObject<Device>(m_membership, station);
    auto far = ns3::CreateObject<ns3::SimpleNetDevice>();
    auto channel = ns3::CreateObject<ns3::SimpleChannel>();
    near->SetAddress(station.mac);
    far->SetAddress(ns3::Mac48Address::Allocate());
    channel->SetAttribute("Delay", ns3::TimeValue(ns3::Seconds(link.delaySeconds)));
    station.node->AddDevice(near);
    m_switch->AddDevice(far);
    for (ns3::Ptr<ns3::SimpleNetDevice> device : {ns3::Ptr<ns3::SimpleNetDevice>(near), far})
    {
        device->SetAttribute("DataRate", ns3::DataRateValue(link.bitsPerSecond));
        device->SetQueue(MakeQueue(link.bitsPerSecond, m_mtu));
        device->SetChannel(channel);
    }
    far->SetPromiscReceiveCallback(ns3::MakeCallback(&Wan::Receive, this));
    station.device = near;
    m_links.push_back({near, far, channel});
}

// The switch's ports were added in the order of the stations, so a port's number is its station's.
bool
Wan::Receive(ns3::Ptr<ns3::NetDevice> port,
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
    uint32_t sender = port->GetIfIndex();
    std::optional<uint32_t> receiver =
        frame.to.IsGroup() ? std::nullopt : m_membership.Find(frame.to);
    if (receiver)
    {
        Forward(sender, *receiver, frame);
        return true;
    }
    for (uint32_t each = 0; each < m_links.size(); ++each)
    {
        Forward(sender, each, frame);
    }
    return true;
}

void
Wan::Forward(uint32_t from, uint32_t to, const Frame& frame)
{
    const Station& sender = m_membership.stations[from];
    Station& receiver = m_membership.stations[to];
    if (from == to || !sender.up || !receiver.up)
    {
        return;
    }
    bool heard = Membership::Hears(sender, receiver);
    if (!heard || !m_links[to].far->SendFrom(frame.payload.Copy(), frame.from, frame.to, frame.protocol))
    {
        ++receiver.dropped;
    }
}

// What is on its way over a link stays there: Membership::Deliver and Forward refuse it at its end.
void
Wan::Leave(Station& station)
{
    const Link& link = m_links[station.index];
    link.near->Flush();
    station.dropped += link.far->GetQueue()->GetNPackets();
    link.far->GetQueue()->Flush();
}

void
Wan::Join(Station&)
{
}

void
Wan::SetRate(const std::vector<uint32_t>& nodes, uint64_t bitsPerSecond)
{
    for (uint32_t node : nodes)
    {
        const Link& link = m_links[node];
        for (ns3::Ptr<ns3::SimpleNetDevice> device :
             {ns3::Ptr<ns3::SimpleNetDevice>(link.near), link.far})
        {
            device->SetAttribute("DataRate", ns3::DataRateValue(bitsPerSecond));
            LimitQueue(*device->GetQueue(), bitsPerSecond, m_mtu);
        }
    }
}

void
Wan::SetDelay(const std::vector<uint32_t>& nodes, double seconds)
{
    for (uint32_t node : nodes)
    {
        m_links[node].channel->SetAttribute("Delay", ns3::TimeValue(ns3::Seconds(seconds)));
    }
}

bool
Wan::PerNode() const
{
    return true;
}

} // namespace peerloom
