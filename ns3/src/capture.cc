#include "capture.h"

#include "options.h"

#include "ns3/ethernet-header.h"
#include "ns3/simulator.h"

namespace peerloom
{

namespace
{

constexpr uint32_t kEthernetLinkType = 1;

} // namespace

Capture::Capture(const std::string& prefix, uint32_t nodes)
{
    for (uint32_t index = 0; index < nodes; ++index)
    {
        std::string path = prefix + "-" + std::to_string(index) + ".pcap";
        auto file = ns3::CreateObject<ns3::PcapFileWrapper>();
        file->Open(path, std::ios::out);
        if (file->Fail())
        {
            throw BadOption("--pcap=" + prefix + ": can't write " + path +
                            "; allowed is a prefix in a folder that exists");
        }
        file->Init(kEthernetLinkType);
        m_files.push_back(file);
    }
}

void
Capture::Write(const Station& station, const Frame& frame)
{
    ns3::EthernetHeader header(false);
    header.SetSource(frame.from);
    header.SetDestination(frame.to);
    header.SetLengthType(frame.protocol);
    ns3::Ptr<ns3::Packet> packet = frame.payload.Copy();
    packet->AddHeader(header);
    m_files[station.index]->Write(ns3::Simulator::Now(), packet);
}

} // namespace peerloom
