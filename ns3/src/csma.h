#pragma once

// The thesis's LAN: one shared channel with one rate and one delay.

#include "medium.h"
#include "station_device.h"

#include "ns3/csma-channel.h"
#include "ns3/csma-net-device.h"
#include "ns3/error-model.h"

namespace peerloom
{

class Csma : public Medium
{
  public:
    Csma(const Options& options, Membership& membership);

    void Leave(Station& station) override;
    void Join(Station& station) override;
    void SetRate(const std::vector<uint32_t>& nodes, uint64_t bitsPerSecond) override;
    void SetDelay(const std::vector<uint32_t>& nodes, double seconds) override;
    bool PerNode() const override;

  private:
    using Device = StationDevice<ns3::CsmaNetDevice, 46>;

    Membership& m_membership;
    uint32_t m_mtu;
    ns3::Ptr<ns3::CsmaChannel> m_channel;
    std::vector<ns3::Ptr<Device>> m_devices;
    std::vector<bool> m_stale; // left before the rate changed: it must be attached anew
};

} // namespace peerloom
