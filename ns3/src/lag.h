#pragma once

// How far the simulator is behind the wall clock, measured every 100 ms of its own time.

#include "ns3/nstime.h"

namespace peerloom
{

class LagMeter
{
  public:
    // Frames that come while the simulator is further behind than this are dropped at the door: its list of
    // events, and with it the lag, would grow for as long as somebody sends faster than it can simulate.
    static const ns3::Time kOverload;

    // The lag at this moment, from within an event.
    static ns3::Time Now();
    // Seconds of wall clock since the simulator started.
    static double Wall();

    void Start();
    double LastSeconds() const;
    double WorstSeconds() const;
    // Takes one measurement.
    void Measure();

  private:
    void Tick();

    double m_last = 0;
    double m_worst = 0;
};

} // namespace peerloom
