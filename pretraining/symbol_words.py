"""Words by which icon sets name what the data sets show: kinds of clip art and emoji, things with numbers, icons."""

from __future__ import annotations

_ANIMALS = """
    animal animals ant antler bat bear beaver bee bird bluesky bone bug butterfly cat chicken claw cow crab
    cricket crow deer dog dolphin dove dragon duck elephant evernote feather firefox fish fly fox frog github gitlab
    goat hippo horse kiwi ladybug linux lion lizard mastodon monkey octopus owl panda paw pet pets pig piggy python
    rabbit ram rooster seal sheep shell shrimp snail snake spider squirrel stumbleupon swift turkey turtle twitter
    whale worm zebra
""".split()  # noqa: SIM905
_PLANTS = """
    acorn agriculture blossom bouquet branch cactus cannabis christmas clover deciduous eco evergreen farm florist
    flower forest garden grain grass lawn leaf leaves lotus mushroom nature nut palm park pine plant plants root
    rose sapling seed seedling shrub spa sprout sunflower tree trees tulip vine wheat
""".split()  # noqa: SIM905
_FOOD = """
    amphora apple avocado bacon bagel baguette bakery banana bar barbecue basket bbq bean beer blackberry blender bottle
    bowl bread breakfast broccoli buffet burger cafe cake candy canned carrot cart champagne cheese chef cherries
    cherry chili chocolate chopping chopsticks citrus cocktail coffee cola cook cooker cookie cookies cooking corn
    cream crockery croissant cup cupcake cutlery dining dinner dish dishes dishwasher donut doughnut drink drinks
    drumstick egg eggplant eggs fastfood food fork french fried fries fruit fruits garlic glass goblet grape grapes
    grill hamburger honey hotdog ice icecream jar java juice kettle kitchen knife ladle lemon lime liquor lollipop
    lunch lunchbox martini meal meat meatball milk mortar mug noodles nutrition onion orange oven pan pea peach
    peanut pear peas pepper pestle pie pint pizza plate popcorn popsicle pot potato pretzel pumpkin radish raspberry
    restaurant rice rolling salad sandwich sausage shaker skewer snack snacks soda soup spoon steak straw strawberry
    stroopwafel sugar sushi taco tea teapot toast toaster tomato toque utensils vegetable vegetables watermelon
    whisk wine wineglass wrap
""".split()  # noqa: SIM905
_PLACES = """
    airport amusement apartment apartments arch archway bank barn bathroom beach brick bridge building buildings
    cabin campground carousel castle chimney church city commerce compass corporation cottage country courthouse dam
    desert domain dome door dungeon earth eiffel embassy estate factory fence ferris fort fountain geo globe
    government home hospital hotel house houseboat huge hut igloo industry institution island kaaba landmark
    landscape landslide lighthouse mall map maps market monument mosque motel mountain mountains museum office
    pagoda palace panorama panoramic place planet playground pyramid railing realestate river road route scene
    scenery school shelter shop stadium stairs store storefront street suburb synagogue taj temple tent terrain
    theater toll tower town university vacation villa village volcano warehouse waterfall windmill world worship
""".split()  # noqa: SIM905
_VEHICLES = """
    aircraft airplane ambulance anchor automobile bicycle bike boat boats bulldozer buoy bus cab canoe car caravan
    cargo carriage cars construction crane cruise cycling delivery drive driving drone engine ev ferry fighter
    flight forklift freight fuel garage gas gondola haul helicopter highway hook jet kayak launch logistics lorry
    metro moped motorbike motorcycle parachute parking petrol pickup plane port propeller pump rail railway rickshaw
    riding rocket rowing rv sail sailboat sailing satellite scooter ship shipment shipping shuttle siren skateboard
    sleigh spaceship starship steering submarine subway take tank taxi tire toolbox tractor traffic trailer train
    tram transit transport transportation travel trip trolley truck ufo van vehicle vehicles wheel wheelchair yacht
""".split()  # noqa: SIM905
_WEATHER = """
    asteroid barometer blizzard bolt celsius cloud clouds cloudy comet cyclone day dew drizzle drop droplet droplets
    drops eclipse fahrenheit fire flame flames flash flood fog galaxy hail haze heat hot humidity hurricane
    lightning meteor mist moisture moon moonset night overcast partly rain rainbow rainy shower sleet smog snow
    snowflake snowing snowman snowy space star stars storm sun sunny sunrise sunset temperature thermometer thunder
    thunderbolt thunderstorm tornado tsunami typhoon umbrella water wave waves weather whirlwind wind windsock windy
    zap
""".split()  # noqa: SIM905
_RECREATION = """
    achievement archery arena art award badminton ball balloon balloons barbell baseball basketball billiard
    birthday bishop bonfire boule bow bowling boxing brush bullseye camp campfire camping canvas casino celebrate
    celebration champion chess circus climbing club clubs confetti controller crystal cue curling darts diamond
    diamonds dive diving drama drum dumbbell easel entertainment event fireworks fishing fitness football frame
    futbol gallery game gameboy gamepad games gaming gift gifts goal golf guitar gym gymnastics hiking hockey
    horseshoe hunt image images instrument joystick jumping karate kayaking king kite knight knit knot lego magic
    medal music nintendo pacman paint painting palette paragliding parasol party pawn photo photos piano picnic
    picture pictures pistol play playing playstation podium pokeball poker pole pool prize puzzle queen racing
    racket reward ribbon rook rugby run running scuba sewing skateboarding skating ski skiing sledding slot snorkel
    snowboard snowboarding snowmobile soccer spade spades spinning sport sports surf surfing surround swim swimming
    tabletennis target tennis thread ticket tickets tournament toy toys treadmill treasure trophy trumpet ufc violin
    volleyball wallpaper wand weightlifting winner workout wrestling xbox yarn yoga
""".split()  # noqa: SIM905
_TOOLS = """
    adjustments anvil axe balance beanie belt blade broom bucket chainsaw clamp cog cogs compasses configuration
    cutter dagger drill fix flashlight gear gears gun hammer hardware hoe iron justice ladder magnet maintenance mop
    nail paintbrush pickaxe pliers plunger preferences rake razor repair roller ruler saw scale scales scalpel screw
    screwdriver setting settings shovel spanner stapler swiss sword swords syringe tape tool tools torch trowel
    vacuum watering workbench wrench
""".split()  # noqa: SIM905
_NUMBERS = """
    abacus alarm atm banknote bill birthdate calculate cash clock coin coins currency decimal dialpad dollar euro
    events gauge history hour hourglass hours keypad meter minute minutes money month numbered numeric numpad
    odometer ordered percent percentage price schedule scoreboard speedometer stopwatch tachometer tally timelapse
    timer times today tomorrow week year yesterday
""".split()  # noqa: SIM905
_ICONS = """
    add ban bin block camera cameras cancel ccw clipboard clockwise clone close command console copy
    counterclockwise cross cut cw cycle delete desktop disk diskette display download duplicate fax find floppy
    folder folders forbid forbidden hard harddisk hdd imac import laptop loop loupe macbook magnifier magnify
    magnifying mic microphone microphones monitor mouse new open paste pc plus podcast print printer printing prompt
    recycle redo refresh reload remove repeat replay reset restart restore revert rotate rubbish save scissor
    scissors screen search spin ssd stop storage sync synchronize terminal trash tty undo update voice webcam x
    xmark zoom
""".split()  # noqa: SIM905

SYMBOL_WORDS = frozenset(
    _ANIMALS + _PLANTS + _FOOD + _PLACES + _VEHICLES + _WEATHER + _RECREATION + _TOOLS + _NUMBERS + _ICONS
)
