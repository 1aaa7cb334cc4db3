// An ns-3 network in real time, between the taps of this network namespace. See README.md.

#include "animation.h"
#include "capture.h"
#include "commands.h"
#include "control.h"
#include "lag.h"
#include "medium.h"
#include "options.h"
#include "relay.h"
#include "tap.h"

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/global-value.h"
#include "ns3/node.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"
#include "ns3/string.h"

#include <algorithm>
#include <csignal>
#include <iostream>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

namespace peerloom
{

namespace
{

constexpr int kNice = -10;
// How long Linux may take to notice that the taps are open.
const ns3::Time kPatience = ns3::Seconds(3);

// Blocks SIGTERM and SIGINT for this thread and all that it starts; they are read from the descriptor.
int
CatchSignals()
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

void
ChooseRealtime(uint32_t seed)
{
    ns3::GlobalValue::Bind("SimulatorImplementationType", ns3::StringValue("ns3::RealtimeSimulatorImpl"));
    // Real frames carry checksums of their own, and computing ns-3's costs a third of the throughput.
    ns3::GlobalValue::Bind("ChecksumEnabled", ns3::BooleanValue(false));
    ns3::Config::SetDefault("ns3::RealtimeSimulatorImpl::SynchronizationMode", ns3::StringValue("BestEffort"));
    ns3::RngSeedManager::SetSeed(seed);
    // The kernel may wake us 50 us late by default, which would add to every delay.
    prctl(PR_SET_TIMERSLACK, 1);
    // The hosts' own work must not make the network late. Where this isn't permitted, the lag tells.
    setpriority(PRIO_PROCESS, 0, kNice);
}

std::vector<Station>
MakeStations(const Options& options)
{
    std::vector<Station> stations;
    for (uint32_t index = 0; index < options.nodes; ++index)
    {
        auto tap = options.taps.find(index);
        Station station{index, "", ns3::Mac48Address::Allocate()};
        if (tap != options.taps.end())
        {
            station.tap = tap->second.name;
            station.mac = ns3::Mac48Address(tap->second.mac.c_str());
        }
        auto link = options.links.find(index);
        station.loss = (link == options.links.end() ? options.link : link->second).loss;
        station.node = ns3::CreateObject<ns3::Node>();
        stations.push_back(station);
    }
    return stations;
}

std::map<uint32_t, std::unique_ptr<Relay>>
Populate(const Options& options, Membership& membership)
{
    std::vector<uint32_t> relays;
    for (Station& station : membership.stations)
    {
        if (station.tap.empty())
        {
            relays.push_back(station.index);
        }
        else
        {
            FilteringTapBridge::Install(membership, station);
        }
    }
    std::map<uint32_t, std::unique_ptr<Relay>> running;
    for (uint32_t index : relays)
    {
        running[index] = std::make_unique<Relay>(membership,
                                                 index,
                                                 relays,
                                                 options.backgroundBitsPerSecond,
                                                 options.mtu);
    }
    return running;
}

// Says that all is ready, as soon as it is.
void
Announce(const Options* options)
{
    bool ready = ns3::Simulator::Now() > kPatience;
    ready = ready || std::all_of(options->taps.begin(), options->taps.end(), [](const auto& tap) {
                return TapRuns(tap.second.name);
            });
    if (!ready)
    {
        ns3::Simulator::Schedule(ns3::MilliSeconds(2), &Announce, options);
        return;
    }
    std::cout << "control=" << options->control << std::endl;
}

void
Run(const Options& options)
{
    int signals = CatchSignals();
    ChooseRealtime(options.seed);
    for (const auto& [index, tap] : options.taps)
    {
        CheckTap("--tap=" + std::to_string(index) + ":" + tap.name + ":" + tap.mac, tap.name);
    }
    Membership membership(MakeStations(options));
    std::unique_ptr<Medium> medium = MakeMedium(options, membership);
    auto relays = Populate(options, membership);
    LagMeter lag;
    Commands commands(membership, *medium, lag, relays);
    std::optional<Capture> capture;
    if (!options.pcap.empty())
    {
        capture.emplace(options.pcap, options.nodes);
        membership.observer = [&capture](const Station& at, const Frame& frame) { capture->Write(at, frame); };
    }
    std::optional<Animation> animation;
    if (!options.netanim.empty())
    {
        animation.emplace(options, membership);
        animation->Start();
        commands.watcher = [&animation](const Station& station) { animation->Show(station); };
    }
    ControlSocket control(options.control, signals, [&commands](const std::string& line) {
        return commands.Answer(line);
    });
    lag.Start();
    // Taps are opened at time 0, so this comes after the last of them.
    ns3::Simulator::Schedule(ns3::NanoSeconds(1), &Announce, &options);
    control.Start();
    ns3::Simulator::Run();
}

} // namespace

} // namespace peerloom

int
main(int argc, char** argv)
{
    try
    {
        peerloom::Options options = peerloom::ReadOptions({argv + 1, argv + argc});
        if (options.help)
        {
            std::cout << peerloom::kUsage;
            return 0;
        }
        peerloom::Run(options);
        ns3::Simulator::Destroy();
        return 0;
    }
    catch (const peerloom::BadOption& bad)
    {
        std::cerr << bad.what() << std::endl;
        return 2;
    }
}
