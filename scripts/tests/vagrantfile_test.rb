# Evaluates the Vagrantfile against a recorder in Vagrant's place: what it asks for, with and
# without knobs. Vagrant itself is not needed.

# Takes any call, notes it, and hands itself to blocks.
class Recorder
  attr_reader :calls

  def initialize
    @calls = []
  end

  def method_missing(name, *args, **opts, &block)
    @calls << [name, args, opts]
    block&.call(self)
    self
  end

  def respond_to_missing?(*)
    true
  end

  def all(name)
    @calls.select { |call| call[0] == name }
  end
end

module Vagrant
  def self.configure(version)
    raise "version #{version}" unless version == "2"
    yield $recorder
  end
end

def evaluate(knobs = {})
  knobs.each { |name, value| ENV["GNOMON_VAGRANT_#{name}"] = value }
  $recorder = Recorder.new
  load File.expand_path("../../Vagrantfile", __dir__)
  $recorder
ensure
  knobs.each_key { |name| ENV.delete("GNOMON_VAGRANT_#{name}") }
end

def expect(what, truth)
  abort "Vagrantfile: #{what}" unless truth
end

plain = evaluate
expect "two data NICs", plain.all(:network).size == 2
expect "data NICs belong to DPDK", plain.all(:network).all? { |_, _, o| o[:auto_config] == false }
expect "both providers", plain.all(:provider).map { |_, a, _| a[0] } == %i[libvirt virtualbox]
expect "an IOMMU under libvirt", plain.all(:qemuargs).any? { |_, _, o| o[:value].to_s.start_with?("intel-iommu") }
expect "three provisioners", plain.all(:provision).map { |_, a, _| a[0] } == %w[kernel tools demo]
expect "the one provision script", plain.all(:provision).any? { |_, _, o| o[:inline].include?("scripts/provision.sh") }
expect "the demo runs", plain.all(:provision).last[2][:inline].include?("make demo")

turned = evaluate("NICS" => "3", "CPUS" => "6", "DEMO" => "0", "HUGE_PAGES" => "77", "BOX" => "some/box")
expect "NICS", turned.all(:network).size == 3
expect "CPUS", turned.all(:cpus=).all? { |_, a, _| a == [6] }
expect "DEMO", turned.all(:provision).none? { |_, a, _| a[0] == "demo" }
expect "HUGE_PAGES", turned.all(:provision).any? { |_, _, o| o[:inline].include?("hugepages=77") }
expect "BOX", turned.all(:box=).first[1] == ["some/box"]
puts "Vagrantfile: as it should be"
