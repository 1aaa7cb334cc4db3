#pragma once

// A capture a node: PREFIX-INDEX.pcap holds the Ethernet frames that the node sent and received, at their
// simulated times.

#include "membership.h"

#include "ns3/pcap-file-wrapper.h"

namespace peerloom
{

class Capture
{
  public:
    // Throws BadOption when the files can't be written.
    Capture(const std::string& prefix, uint32_t nodes);

    void Write(const Station& station, const Frame& frame);

  private:
    std::vector<ns3::Ptr<ns3::PcapFileWrapper>> m_files; // by node
};

} // namespace peerloom
