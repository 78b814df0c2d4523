HEAD
require 'sinatra/base'

VERSION, MODE = '@VERSION', '@MODE'
PIECE = 'x' * 65_536

class Site < Sinatra::Base
  set :environment, :production
  disable :protection

  get '/' do
    raise 'broken on purpose' if MODE == 'fails' || (MODE == 'half' && rand < 0.5)
    VERSION
  end

  get '/work' do
    sleep(MODE == 'slow' ? 0.6 : 0.1)
    VERSION
  end

  post '/up' do
    total = 0
    while (piece = request.body.read(65_536))
      total += piece.bytesize
    end
    total.to_s
  end

  get '/down/:mebibytes' do |mebibytes|
    stream { |out| (mebibytes.to_i * 16).times { out << PIECE } }
  end

  get '/events' do
    content_type 'text/event-stream'
    stream do |out|
      loop do
        out << "data: #{VERSION}\n\n"
        sleep 0.1
      end
    end
  end
end

run Site
