#pragma once

// What stands between the nodes: a shared LAN (csma.h) or an access link a node (wan.h).

#include "membership.h"
#include "options.h"

#include <memory>
#include <vector>

namespace peerloom
{

class Medium
{
  public:
    virtual ~Medium() = default;
    virtual void Leave(Station& station) = 0;
    virtual void Join(Station& station) = 0;
    virtual void SetRate(const std::vector<uint32_t>& nodes, uint64_t bitsPerSecond) = 0;
    virtual void SetDelay(const std::vector<uint32_t>& nodes, double seconds) = 0;
    // Whether rate and delay belong to each node (or to the one channel that all share).
    virtual bool PerNode() const = 0;
};

// Gives every station a device; from then on station.device is set.
std::unique_ptr<Medium> MakeMedium(const Options& options, Membership& membership);

} // namespace peerloom
