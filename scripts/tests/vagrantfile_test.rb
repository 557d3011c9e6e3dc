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

def script(recorder, name)
  recorder.all(:provision).find { |_, a, _| a[0] == name }[2][:inline]
end

# Those of the appliance; the client's have addresses that Vagrant sets.
def data_nics(recorder)
  recorder.all(:network).select { |_, _, o| o[:auto_config] == false }
end

plain = evaluate
expect "two guests", plain.all(:define).map { |_, a, _| a[0] } == %w[appliance client]
expect "two data NICs", data_nics(plain).size == 2
expect "a client's NIC to each", plain.all(:network).size == 4
expect "both providers for both", plain.all(:provider).map { |_, a, _| a[0] } == %i[libvirt virtualbox] * 2
expect "an IOMMU under libvirt", plain.all(:qemuargs).any? { |_, _, o| o[:value].to_s.start_with?("intel-iommu") }
expect "what is done in them", plain.all(:provision).map { |_, a, _| a[0] } == %w[build appliance build replay]
expect "the one provision script", script(plain, "build").include?("scripts/provision.sh")
expect "the one set-up script", script(plain, "appliance").include?("scripts/appliance_setup.sh")
expect "an address to each port", script(plain, "appliance").include?("gnomon.ip=0=10.91.0.1/24,1=10.91.1.1/24")
expect "NICs by address", script(plain, "appliance").include?("02:00:00:00:7a:00 02:00:00:00:7a:01")
expect "every reply checked", script(plain, "replay").include?("./gnomon-replay")

turned = evaluate("NICS" => "3", "CPUS" => "6", "NET" => "10.8", "HUGE_PAGES" => "77", "BOX" => "some/box",
                  "NIC_MODEL" => "virtio", "RATE" => "99", "REQUESTS" => "1234")
expect "NICS", data_nics(turned).size == 3
expect "CPUS", turned.all(:cpus=).count { |_, a, _| a == [6] } == 2
expect "NET", script(turned, "appliance").include?("2=10.8.2.1/24")
expect "HUGE_PAGES", script(turned, "appliance").include?("GNOMON_HUGE_PAGES=77")
expect "BOX", turned.all(:box=).first[1] == ["some/box"]
expect "NIC_MODEL", turned.all(:nic_model_type=).first[1] == ["virtio"]
expect "RATE", script(turned, "replay").include?("--rate 99")
expect "REQUESTS", script(turned, "replay").include?("--requests 1234")
puts "Vagrantfile: as it should be"
