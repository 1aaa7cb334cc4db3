#include "lag.h"

#include "ns3/realtime-simulator-impl.h"
#include "ns3/simulator.h"

#include <algorithm>

namespace peerloom
{

namespace
{

ns3::RealtimeSimulatorImpl&
Simulation()
{
    // main() chose this implementation, so the cast holds.
    static auto* simulation = ns3::PeekPointer(
        ns3::DynamicCast<ns3::RealtimeSimulatorImpl>(ns3::Simulator::GetImplementation()));
    return *simulation;
}

} // namespace

const ns3::Time LagMeter::kOverload = ns3::MilliSeconds(500);

ns3::Time
LagMeter::Now()
{
    return Simulation().RealtimeNow() - ns3::Simulator::Now();
}

double
LagMeter::Wall()
{
    return Simulation().RealtimeNow().GetSeconds();
}

void
LagMeter::Start()
{
    ns3::Simulator::Schedule(ns3::MilliSeconds(100), &LagMeter::Tick, this);
}

void
LagMeter::Tick()
{
    Measure();
    Start();
}

void
LagMeter::Measure()
{
    m_last = std::max(0.0, Now().GetSeconds());
    m_worst = std::max(m_worst, m_last);
}

double
LagMeter::LastSeconds() const
{
    return m_last;
}

double
LagMeter::WorstSeconds() const
{
    return m_worst;
}

} // namespace peerloom
