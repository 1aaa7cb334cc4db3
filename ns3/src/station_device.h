#pragma once

// A device of ns-3 that asks the membership before a frame enters the network, and counts it.

#include "membership.h"

#include "ns3/drop-tail-queue.h"
#include "ns3/queue-size.h"

#include <algorithm>

namespace peerloom
{

// How many bytes may wait for a link: what it carries in 100 ms, but room for 64 frames at least (a slow
// link would lose every burst) and 16 MiB at most (beyond that, waiting is memory and delay without use).
inline ns3::QueueSize
QueueLimit(uint64_t bitsPerSecond, uint32_t mtu)
{
    uint64_t bytes = std::clamp<uint64_t>(bitsPerSecond / 80, 64 * mtu, 16 << 20);
    return {ns3::QueueSizeUnit::BYTES, static_cast<uint32_t>(bytes)};
}

// ns-3 aborts when a queue's limit becomes less than what it holds.
inline void
LimitQueue(ns3::Queue<ns3::Packet>& queue, uint64_t bitsPerSecond, uint32_t mtu)
{
    ns3::QueueSize limit = QueueLimit(bitsPerSecond, mtu);
    uint32_t bytes = std::max(limit.GetValue(), queue.GetNBytes());
    queue.SetMaxSize({ns3::QueueSizeUnit::BYTES, bytes});
}

inline ns3::Ptr<ns3::Queue<ns3::Packet>>
MakeQueue(uint64_t bitsPerSecond, uint32_t mtu)
{
    auto queue = ns3::CreateObject<ns3::DropTailQueue<ns3::Packet>>();
    queue->SetMaxSize(QueueLimit(bitsPerSecond, mtu));
    return queue;
}

// Base: CsmaNetDevice or SimpleNetDevice. MINIMUM_PAYLOAD: to how many bytes the base pads a frame.
template <class Base, uint32_t MINIMUM_PAYLOAD>
class StationDevice : public Base
{
  public:
    StationDevice(Membership& membership, Station& station)
        : m_membership(membership),
          m_station(station)
    {
    }

    bool Send(ns3::Ptr<ns3::Packet> packet, const ns3::Address& to, uint16_t protocol) override
    {
        return SendFrom(packet, this->GetAddress(), to, protocol);
    }

    bool SendFrom(ns3::Ptr<ns3::Packet> packet,
                  const ns3::Address& from,
                  const ns3::Address& to,
                  uint16_t protocol) override
    {
        Frame frame{*packet,
                    ns3::Mac48Address::ConvertFrom(from),
                    ns3::Mac48Address::ConvertFrom(to),
                    protocol};
        // The base adds its header to the packet, so the size is taken first.
        uint32_t bytes = kEthernetHeaderBytes + std::max(packet->GetSize(), MINIMUM_PAYLOAD);
        if (!m_membership.Admit(m_station, frame))
        {
            return false;
        }
        if (!Base::SendFrom(packet, from, to, protocol))
        {
            ++m_station.dropped;
            return false;
        }
        m_station.sent.bytes += bytes;
        ++m_station.sent.packets;
        return true;
    }

    // Throws away what waits to be sent.
    void Flush()
    {
        m_station.dropped += this->GetQueue()->GetNPackets();
        this->GetQueue()->Flush();
    }

  private:
    Membership& m_membership;
    Station& m_station;
};

} // namespace peerloom
