#include "csma.h"

#include "ns3/data-rate.h"
#include "ns3/node.h"

namespace peerloom
{

Csma::Csma(const Options& options, Membership& membership)
    : m_membership(membership),
      m_mtu(options.mtu),
      m_channel(ns3::CreateObject<ns3::CsmaChannel>()),
      m_stale(membership.stations.size(), false)
{
    m_channel->SetAttribute("DataRate", ns3::DataRateValue(options.link.bitsPerSecond));
    m_channel->SetAttribute("Delay", ns3::TimeValue(ns3::Seconds(options.link.delaySeconds)));
    for (Station& station : membership.stations)
    {
        auto device = ns3::CreateObject<Device>(membership, station);
        device->SetAddress(station.mac);
        device->SetMtu(options.mtu);
        device->SetQueue(MakeQueue(options.link.bitsPerSecond, options.mtu));
        device->TraceConnectWithoutContext(
            "PhyTxDrop",
            ns3::Callback<void, ns3::Ptr<const ns3::Packet>>(
                [&station](ns3::Ptr<const ns3::Packet>) { ++station.dropped; }));
        station.node->AddDevice(device);
        device->Attach(m_channel);
        station.device = device;
        m_devices.push_back(device);
    }
}

// ns-3 wedges a device for ever whose queue runs full while it can't send: SendFrom refuses when the queue is
// full, before it looks whether the transmitter stands idle. So the queue is emptied on both sides of an
// absence, and StationDevice lets nothing in between.
void
Csma::Leave(Station& station)
{
    m_channel->Detach(m_devices[station.index]);
    m_devices[station.index]->Flush();
}

void
Csma::Join(Station& station)
{
    ns3::Ptr<Device> device = m_devices[station.index];
    device->Flush();
    if (m_stale[station.index])
    {
        device->Attach(m_channel);
        m_stale[station.index] = false;
    }
    else
    {
        // Attach would add an entry to the channel's list at each toggle.
        m_channel->Reattach(device);
    }
}

// A device reads the channel's rate only while it attaches, so each is taken off and attached again.
void
Csma::SetRate(const std::vector<uint32_t>&, uint64_t bitsPerSecond)
{
    m_channel->SetAttribute("DataRate", ns3::DataRateValue(bitsPerSecond));
    for (Station& station : m_membership.stations)
    {
        ns3::Ptr<Device> device = m_devices[station.index];
        LimitQueue(*device->GetQueue(), bitsPerSecond, m_mtu);
        m_stale[station.index] = !station.up;
        if (station.up)
        {
            m_channel->Detach(device);
            device->Attach(m_channel);
        }
    }
}

void
Csma::SetDelay(const std::vector<uint32_t>&, double seconds)
{
    m_channel->SetAttribute("Delay", ns3::TimeValue(ns3::Seconds(seconds)));
}

bool
Csma::PerNode() const
{
    return false;
}

} // namespace peerloom
