#include "membership.h"

#include "lag.h"

#include <utility>

namespace peerloom
{

namespace
{

// A host that invents addresses must not fill our memory.
constexpr size_t kMaximumAddresses = 65536;

uint64_t
Key(const ns3::Mac48Address& address)
{
    uint8_t bytes[6];
    address.CopyTo(bytes);
    uint64_t key = 0;
    for (uint8_t byte : bytes)
    {
        key = key << 8 | byte;
    }
    return key;
}

} // namespace

Membership::Membership(std::vector<Station> members)
    : stations(std::move(members)),
      m_uniform(ns3::CreateObject<ns3::UniformRandomVariable>())
{
    for (const Station& station : stations)
    {
        m_learned[Key(station.mac)] = station.index;
    }
}

bool
Membership::Admit(Station& station, const Frame& frame)
{
    if (!station.up || LagMeter::Now() > LagMeter::kOverload)
    {
        ++station.dropped;
        return false;
    }
    if (m_learned.size() < kMaximumAddresses)
    {
        m_learned[Key(frame.from)] = station.index;
    }
    if (observer)
    {
        observer(station, frame);
    }
    return true;
}

bool
Membership::Deliver(Station& station, const Frame& frame)
{
    // TapBridge would hand every frame of a shared medium to every tap.
    if (!station.up || (frame.to != station.mac && !frame.to.IsGroup()))
    {
        return false;
    }
    std::optional<uint32_t> sender = Find(frame.from);
    bool cut = sender && !Hears(stations[*sender], station);
    if (cut || (station.loss > 0 && m_uniform->GetValue() < station.loss))
    {
        ++station.dropped;
        return false;
    }
    station.received.bytes += frame.payload.GetSize() + kEthernetHeaderBytes;
    ++station.received.packets;
    if (observer)
    {
        observer(station, frame);
    }
    return true;
}

bool
Membership::Hears(const Station& one, const Station& other)
{
    return !one.set || !other.set || *one.set == *other.set;
}

std::optional<uint32_t>
Membership::Find(const ns3::Mac48Address& address) const
{
    auto found = m_learned.find(Key(address));
    return found == m_learned.end() ? std::nullopt : std::optional<uint32_t>(found->second);
}

} // namespace peerloom
